"""``python testbed/run.py``: one experiment, from its flags and file to a table, a figure and a verdict."""

from __future__ import annotations

import argparse
import contextlib
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from testbed import spec
from testbed.cli import flags
from testbed.core import text
from testbed.core.errors import EXIT_FAILED, EXIT_INVALID, EXIT_OK, MachineError, RequestError, within_unless_named
from testbed.spec import Spec
from testbed.spec import place as where

if TYPE_CHECKING:
    from testbed.backends import Substrate
    from testbed.backends.choice import Choice
    from testbed.campaign.driver import Wanted
    from testbed.core.locks import Locks
    from testbed.core.runs.plan import Plan
    from testbed.core.runs.summary import Summary
    from testbed.planning.plan import Planned

DESCRIPTION = "Run training jobs against each other over a shared bottleneck, on the real TCP stack."
EPILOG = """\
Quantities need a unit: 500mbit, 64kB, 1.5ms. Algorithms take parameters:
--system reno mltcp_reno:slope=1.75,intercept=0.25

exit codes: 0 done (the last line says whether valid or suspect; --strict turns suspect into 4),
1 the run failed, 2 the request was wrong, 3 this machine cannot do it, 4 it ran but the result is invalid,
130 interrupted
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.prog, parser.description, parser.epilog = "python testbed/run.py", DESCRIPTION, EPILOG
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("file", nargs="?", help="experiment as TOML; flags override its fields")
    flags.add(
        parser.add_argument_group("network"),
        "topo", "scheduler", "rate", "buffer", "mtu", "acks", "ecn", "bands", "delay", "jitter", "loss", "corrupt", "rto_min",
        "nic", "host_queue", "sndbuf", "slow_start_after_idle", "scale_of", "intra_rate",
    )  # fmt: skip
    flags.add(
        parser.add_argument_group("jobs"),
        "jobs", "workers", "trace", "compute", "bytes", "buckets", "iterations", "offsets", "noise", "collective", "channels", "window", "partition", "train", "job", "job_order",
    )  # fmt: skip
    flags.add(parser.add_argument_group("what is compared"), "system", "preset")
    how = parser.add_argument_group("how")
    how.add_argument("--set", action="append", metavar="PATH=VALUE", help=flags.SET)
    flags.add(how, "seed", "seeds", "isolated_runs", "sample", "messages", "stop_when_periodic", "on")
    how.add_argument(
        "--linux-source",
        type=Path,
        metavar="PATH",
        help="a user-mode Linux of one's own: tarball or tree, 6.1 or newer",
    )
    flags.add(how, "wall_limit")
    flags.add_retries(how)
    flags.add_again(how)
    how.add_argument(
        "--verify", type=Path, metavar="RUNDIR", help="repeat a run from its manifest and compare byte for byte"
    )
    flags.add_external(
        how,
        "execute code (topology, congestion control, program) that the experiment's file names, as root; or that RUNDIR names, with --verify",
    )
    flags.add(how, "name")
    how.add_argument("--out", default="results", help="where results go (%(default)s)")
    how.add_argument("--quick", action="store_true", help="as the file's [quick] table has it: less of everything")
    how.add_argument(
        "--json",
        action="store_true",
        help="print the summary as JSON; with --dry-run, the runs, their folders and the expected time",
    )
    how.add_argument("--quiet", action="store_true", help="no progress")
    how.add_argument("--dry-run", action="store_true", help="print what would be done, in order")
    how.add_argument("--strict", action="store_true", help="a suspect result ends with code 4")


def run(parsed: argparse.Namespace) -> int:
    flags.check_retries(parsed.retries)
    if parsed.verify is not None:
        return _verify(parsed)
    asked = _Request(parsed)
    chosen = asked.choice()
    if parsed.dry_run:
        if parsed.json:
            print(json.dumps(asked.document(chosen), allow_nan=False))
        else:
            print("\n".join(map(text.plain, asked.described(chosen))))
        return EXIT_OK

    from testbed.campaign import driver
    from testbed.campaign.executors import Here
    from testbed.campaign.stored import folders as stored
    from testbed.cli.console import Progress
    from testbed.core import folders, locks, terminal

    notes, quiet = terminal.errors(), parsed.quiet or parsed.json
    connecting = where.is_remote(chosen.place) and not quiet
    with notes.status(f"{chosen.place}: connecting") if connecting else contextlib.nullcontext():
        chosen, substrate = asked.settled(chosen)
    if chosen.reason is not None:
        terminal.say_error(chosen)
    out = Path(parsed.out)
    with locks.held(out) as held:
        planned = asked.named(chosen, held)
        for run in driver.wanted(planned, out):
            folders.check(run.folder, out)
            folders.check(run.experiment / "figures", out)
        work = stored.work(planned, out, lambda _run: [substrate], flags.again(parsed))
        if work.kept and not quiet:
            terminal.say(notes, work.said())
        if work.todo:
            with Progress([run.plan for run in work.todo], notes, chosen.place, quiet=quiet) as progress:
                lanes = [Here(substrate, progress)]
                driver.drive(work.todo, lanes, progress, retries=parsed.retries, is_there=work.is_there, kept=work.kept)
        runs = work.summed_up(planned[0][0])
        summary = driver.sum_up(runs)
        _show(summary, runs, substrate if where.is_remote(chosen.place) else None, as_json=parsed.json)
    if summary.verdict == "invalid" or (parsed.strict and summary.verdict != "valid"):
        return EXIT_INVALID
    return EXIT_OK


def _noted(words: str) -> None:
    from testbed.core import terminal

    terminal.say_error(words)


class _Request:
    """The experiment that the command line asks for, read as often as the place it goes to becomes clearer."""

    def __init__(self, parsed: argparse.Namespace) -> None:
        self.file, self.linux_source = parsed.file, parsed.linux_source
        self.out, self.dry_run = Path(parsed.out), parsed.dry_run
        self.flags = flags.given(parsed)

    def read(self, given: dict[str, Any]) -> list[Spec]:
        asked = spec.read(self.file, given)
        if "," in asked.on:
            raise RequestError(
                f"--on {asked.on}: several machines share the runs of a sweep (`python -m testbed sweep`)."
            )
        if self.linux_source is not None and where.in_real_time(asked.on):
            raise RequestError(f"--linux-source is for --on uml; on `{asked.on}` the kernel is the machine's own.")
        return [asked]

    def choice(self) -> Choice:
        """Where it would run, and what; results can be written."""
        from testbed.backends import choice
        from testbed.core.runs import rundir
        from testbed.linux import privileges

        root = privileges.caller() is not None
        if self.dry_run:
            privileges.give_up()
        with within_unless_named(self.file):
            chosen = choice.choose(self.read, self.flags, self.linux_source)
        if not (root and self.dry_run and where.in_real_time(chosen.place)):  # that run would write as root
            rundir.check_writable(self.out)
        return chosen

    def settled(self, chosen: Choice) -> tuple[Choice, Substrate]:
        from testbed.backends import choice

        with within_unless_named(self.file):
            return choice.settle(chosen, self.read, self.flags, self.linux_source)

    def named(self, chosen: Choice, held: Locks | None = None) -> list[Planned]:
        """The experiment by the name of its folder."""
        from testbed.campaign.stored import folders

        file = None if "name" in self.flags else self.file
        return folders.named(chosen.planned, self.out, file, elsewhere=chosen.elsewhere, locks=held, tell=_noted)

    def described(self, chosen: Choice) -> Iterator[str]:
        """Where it would run, what the file's ``[realtime]`` changes there, and every run."""
        from testbed import backends as substrates
        from testbed.backends import choice
        from testbed.cli import dry_run

        try:
            substrates.check_congestion(chosen.place, chosen.plans)
        except MachineError as error:
            raise choice.explained(chosen, error) from error
        yield str(chosen)
        if where.in_real_time(chosen.place):
            (virtual,), (real,) = self.read({**self.flags, "on": "uml"}), self.read({**self.flags, "on": "host"})
            if changed := spec.differences(virtual, real):
                yield "[realtime] is in force:"
                yield from (f"  {line}" for line in changed)
        if substrates.is_assumed(chosen.place):
            yield "What the kernel there can is assumed: only root finds out, there."
        known = None if where.is_computed(chosen.place) else substrates.foreseen(chosen.place)
        plans = self.plans(chosen)
        for plan in plans:
            yield from dry_run.describe(plan, known)
        yield dry_run.total(plans, self.out, chosen.place)

    def plans(self, chosen: Choice) -> list[Plan]:
        """Every run, by the name of the folder that it would have."""
        return [plan for _, plans in self.named(chosen) for plan in plans]

    def document(self, chosen: Choice) -> dict[str, Any]:
        """What would be run, for programs; raises what the run would."""
        from testbed import backends as substrates
        from testbed.cli import dry_run

        substrates.check_congestion(chosen.place, chosen.plans)
        return dry_run.document(self.plans(chosen), self.out, chosen.place)


def _show(summary: Summary, runs: Sequence[Wanted], machine: Substrate | None, *, as_json: bool) -> None:
    """Draw the figures, print the results; ``machine`` is the other one that they were on."""
    from testbed.campaign import driver
    from testbed.cli import run_summary
    from testbed.core.runs import documents, rundir
    from testbed.core.runs.manifest import UserModeLinux
    from testbed.report import views

    folder, out = runs[0].experiment, runs[0].out
    figures = []
    for experiment in driver.experiments(runs):
        with rundir.filled(experiment.path / "figures", out) as aside:
            figures += [experiment.path / "figures" / path.name for path in views.draw(experiment, aside)]
    if as_json:
        print(documents.encode(summary).decode(), end="")
    else:
        remote = None if machine is None else machine.identity()
        assert not isinstance(remote, UserModeLinux)
        run_summary.show(summary, folder, [wanted.plan for wanted in runs], figures, remote)


def _verify(parsed: argparse.Namespace) -> int:
    from testbed.linux import privileges

    allowed = {"run", "verify", "allow_external_code", "linux_source", "wall_limit", "quiet", "on", "dry_run"}
    given = [key for key, value in vars(parsed).items() if value not in (None, False) and key not in {*allowed, "out"}]
    if given:
        raise RequestError(
            f"--verify repeats a run from its manifest; it takes no --{given[0].replace('_', '-')} beside it."
        )
    privileges.give_up()  # it repeats what ran under virtual time
    # Imported by who is not root any more: compiled loops are kept in a folder of theirs.
    from testbed import backends as substrates
    from testbed.campaign import verify
    from testbed.cli import dry_run

    if parsed.dry_run:
        plan = verify.read(parsed.verify, trusted=parsed.allow_external_code)[0].plan
        print("\n".join(map(text.plain, dry_run.describe(plan, substrates.foreseen("uml")))))
        return EXIT_OK
    limit = None if parsed.wall_limit is None else spec.read(None, {"wall_limit": parsed.wall_limit}).wall_limit
    lines = verify.repeat(parsed.verify, parsed.linux_source, limit, trusted=parsed.allow_external_code)
    print("\n".join(map(text.paragraph, lines or [f"{parsed.verify}: repeated, identical to the byte"])))
    return EXIT_FAILED if lines else EXIT_OK

"""``mltcp run``: one experiment, from its flags and file to a table, a figure and a verdict."""

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
from testbed.core.errors import EXIT_INTERRUPTED, EXIT_INVALID, EXIT_OK, RequestError, within
from testbed.spec import backend_names

if TYPE_CHECKING:
    from testbed.backends import Backend
    from testbed.backends.choice import Choice
    from testbed.campaign.driver import Wanted
    from testbed.campaign.executors import Observer
    from testbed.campaign.request import Request
    from testbed.campaign.stored.folders import Work
    from testbed.core.runs.summary import Summary

DESCRIPTION = """Run training jobs that share a bottleneck, on the real TCP stack. Quantities need a unit: 500mbit, 64kB.
Parameters follow a colon: mltcp_reno:slope=1.75."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = DESCRIPTION
    groups = add_experiment(
        parser,
        "permission to execute code (topology, congestion control, program) that the experiment's file names, as root; with --verify, that RUNDIR names",
    )
    execution, advanced = groups["execution"], groups[flags.ADVANCED]
    execution.add_argument("--dry-run", action="store_true", help="list of what would be done; nothing is run")
    flags.add_again(execution)
    flags.add_retries(advanced)
    advanced.add_argument(
        "--verify",
        type=Path,
        metavar="RUNDIR",
        help="stored run to repeat from its manifest, and to compare byte for byte",
    )
    advanced.add_argument(
        "--pause-at",
        metavar="TIME",
        help="time after its start at which each run stops and opens its shell, under virtual time: 10s",
    )
    groups["results"].add_argument("--json", action="store_true", help="JSON instead of tables; also with --dry-run")
    groups["results"].add_argument("--quiet", action="store_true", help="no progress display")
    advanced.add_argument("--strict", action="store_true", help="exit code 4 for a suspect result, too")


def add_experiment(parser: argparse.ArgumentParser, external: str) -> dict[str, argparse._ArgumentGroup]:
    """The arguments that define an experiment, by group; ``external``: help of `--allow-external-code`."""
    parser.add_argument("file", nargs="?", help="experiment as TOML; flags override its fields")
    groups = flags.add_all(parser)
    execution, advanced = groups["execution"], groups[flags.ADVANCED]
    execution.add_argument("--set", action="append", metavar="PATH=VALUE", help=flags.SET)
    execution.add_argument("--quick", action="store_true", help="reduced experiment, by the file's [quick] table")
    groups["results"].add_argument(
        "--out", metavar="FOLDER", default="results", help="results folder (default: %(default)s)"
    )
    advanced.add_argument(
        "--linux-source",
        type=Path,
        metavar="PATH",
        help="custom user-mode Linux: tarball or tree, 6.1 or newer (default: the shipped or installed one)",
    )
    flags.add_external(advanced, external)
    return groups


def run(parsed: argparse.Namespace) -> int:
    flags.check_retries(parsed.retries)
    if parsed.verify is not None:
        return _verify(parsed)
    from testbed.backends import choice
    from testbed.campaign.request import Request

    asked = Request(parsed.file, flags.given(parsed), Path(parsed.out), parsed.linux_source)
    chosen = asked.choice(dry_run=parsed.dry_run)
    pause_ns = None if parsed.pause_at is None else _pause_ns(parsed.pause_at, chosen.backend)
    if parsed.dry_run:
        choice.check_without_run(chosen)
        if parsed.json:
            print(json.dumps(_document(asked, chosen), allow_nan=False))
        else:
            print("\n".join(map(text.plain, _described(asked, chosen))))
        return EXIT_OK

    from testbed.cli.shell_terminal import Display, Terminal
    from testbed.core import terminal
    from testbed.core.runs.shell import ShellRequest

    notes, quiet = terminal.errors(), parsed.quiet or parsed.json
    connecting = backend_names.is_remote(chosen.backend) and not quiet
    with notes.status(f"{chosen.backend}: connecting") if connecting else contextlib.nullcontext():
        chosen, backend = asked.resolve_backend(chosen)
    if chosen.reason is not None:
        terminal.say_error(chosen)
    display = Display()
    if pause_ns is not None:
        request = ShellRequest(str(Path.cwd()), at_start=False, pause_ns=pause_ns)
        backend = Terminal(display).visit(backend, request)

    @contextlib.contextmanager
    def progress(work: Work) -> Iterator[Observer]:
        from testbed.cli.console import Progress
        from testbed.planning import captures

        if work.kept and not quiet:
            terminal.say(notes, work.describe_kept())
        captured = next((run.plan for run in work.todo if run.plan.capture), None)
        if not quiet and captured is not None and captured.capture is not None:
            terminal.say(notes, captures.described(captured.capture, background=bool(captured.background)))
        if not work.todo:
            yield lambda _plan, _event: None
            return
        with Progress([run.plan for run in work.todo], notes, chosen.backend, quiet=quiet) as shown, display.of(shown):
            yield shown

    def show(summary: Summary, runs: Sequence[Wanted]) -> None:
        show_summary(summary, runs, backend if backend_names.is_remote(chosen.backend) else None, as_json=parsed.json)

    from testbed.backends.visit import LeftError, Visited

    try:
        summary, _ = asked.carry_out(
            chosen, backend, progress, show, again=flags.again(parsed), retries=parsed.retries, tell=terminal.say_error
        )
    except LeftError as left:
        terminal.say_error(left)
        return EXIT_INTERRUPTED
    if isinstance(backend, Visited) and backend.unopened:
        terminal.say_error(
            f"note: no shell opened in {', '.join(backend.unopened)}, which ended before --pause-at {parsed.pause_at}."
        )
    if summary.verdict == "invalid" or (parsed.strict and summary.verdict != "valid"):
        return EXIT_INVALID
    return EXIT_OK


def _pause_ns(at: str, backend: str) -> int:
    """``--pause-at``; raises `RequestError`."""
    from testbed.core.units import Duration

    with within("--pause-at"):
        at_ns = int(Duration.parse(at))
    if backend != backend_names.EXACT:
        has = "computes a run at once" if backend_names.is_computed(backend) else "has a real clock"
        raise RequestError(f"--pause-at {at}: only virtual time can stop, and `{backend}` {has}. Use --on uml.")
    return at_ns


def _described(asked: Request, chosen: Choice) -> Iterator[str]:
    """Yield the chosen backend, the changes by the file's ``[real-clock]`` there, and every run."""
    from testbed import backends
    from testbed.cli import dry_run

    yield str(chosen)
    if backend_names.in_real_time(chosen.backend):
        (virtual,), (real,) = asked.read({**asked.fields, "on": "uml"}), asked.read({**asked.fields, "on": "host"})
        if changed := spec.differences(virtual, real):
            yield "[real-clock] applies:"
            yield from (f"  {line}" for line in changed)
    if backends.is_assumed(chosen.backend):
        yield "The features of that kernel are assumed; detecting them needs root there."
    known = None if backend_names.is_computed(chosen.backend) else backends.foreseen(chosen.backend)
    plans = asked.plans(chosen)
    for plan in plans:
        yield from dry_run.describe(plan, known)
    yield dry_run.total(plans, asked.out, chosen.backend)


def _document(asked: Request, chosen: Choice) -> dict[str, Any]:
    """What would be run, for programs."""
    from testbed.cli import dry_run

    return dry_run.document(asked.plans(chosen), asked.out, chosen.backend)


def show_summary(summary: Summary, runs: Sequence[Wanted], machine: Backend | None, *, as_json: bool) -> None:
    """Draw the figures, print the results; ``machine``: the other one that they were on."""
    from testbed.campaign import driver
    from testbed.cli import run_summary
    from testbed.core.runs import documents
    from testbed.core.runs.manifest import UserModeLinux
    from testbed.report import views

    figures = views.write(driver.experiments(runs), runs[0].out)
    if as_json:
        print(documents.encode(summary).decode(), end="")
    else:
        remote = None if machine is None else machine.identity()
        assert not isinstance(remote, UserModeLinux)
        run_summary.show(summary, runs[0].experiment, [wanted.plan for wanted in runs], figures, remote)


def _verify(parsed: argparse.Namespace) -> int:
    from testbed.cli import verify

    allowed = {"run", "verify", "allow_external_code", "linux_source", "wall_limit", "quiet", "on", "dry_run"}
    given = [key for key, value in vars(parsed).items() if value not in (None, False) and key not in {*allowed, "out"}]
    if given:
        raise RequestError(
            f"--verify repeats a run from its manifest; it takes no --{given[0].replace('_', '-')}. Leave that out."
        )
    return verify.run(parsed)

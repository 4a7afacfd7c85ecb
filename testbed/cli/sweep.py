"""``mltcp sweep experiments/*.toml -j 2``: run many experiments.

Missing runs are made in a shuffled order, so that a drift of the machine does not look like an effect. The order
depends only on the existing runs. A run is kept if its manifest holds the same plan, files, program, and kernel. A run
that differs is replaced only with ``--again`` or ``--renew`` (`testbed.campaign.stored.folders`). A failed run does not
stop the others and is listed at the end.

Experiments of schedules (``kind = "schedules"``) are computed on this machine, regardless of the flags for backends and
repetitions.

Several other machines (``--on ssh:a --on ssh:b``) share the runs; each takes one at a time.
"""

from __future__ import annotations

import argparse
import json
import shlex
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from testbed.cli import flags
from testbed.core import text
from testbed.core.errors import (
    EXIT_FAILED,
    EXIT_INVALID,
    EXIT_OK,
    RequestError,
    VirtualTimeOnlyError,
    within_unless_named,
)
from testbed.core.runs.schedules import Asked
from testbed.core.units import parse_fraction
from testbed.spec import backend_names, schedules, sweep

if TYPE_CHECKING:
    from testbed.backends import Backend
    from testbed.campaign.driver import Failure, Wanted
    from testbed.campaign.executors import Executor
    from testbed.campaign.stored.folders import Work
    from testbed.planning.plan import Planned

DESCRIPTION = "Runs what is not there yet, in a shuffled order; a run that fails does not stop the others."


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = DESCRIPTION
    parser.add_argument("files", nargs="+", help="experiments as TOML, each with or without a [sweep]")
    parser.add_argument(
        "-j",
        "--parallel",
        type=int,
        default=1,
        metavar="N",
        help="concurrent runs; more than 1 only on uml (default: 1)",
    )
    flags.add(
        parser, "on", action="append",
        help="backend; several other machines (ssh:a,ssh:b, or --on repeated) share the runs (default: the files')",
    )  # fmt: skip
    flags.add(parser, "seeds", help="number of seeds; intervals need 3 or more (default: each file's)")
    flags.add(parser, "iterations", help="iterations to measure per job (default: each file's)")
    parser.add_argument("--set", action="append", metavar="PATH=VALUE", help=f"{flags.SET}, in all files")
    parser.add_argument("--quick", action="store_true", help="reduced experiments, by the files' [quick] tables")
    parser.add_argument(
        "--dry-run", action="store_true", help="list of runs, folders and expected time; nothing is run"
    )
    flags.add_again(parser)
    parser.add_argument("--out", metavar="FOLDER", default="results", help="results folder (default: %(default)s)")
    parser.add_argument("--json", action="store_true", help="JSON instead of text, with --dry-run")
    parser.add_argument("--quiet", action="store_true", help="no progress display")
    advanced = parser.add_argument_group(flags.ADVANCED)
    advanced.add_argument(
        "--executor", default="local", metavar="NAME",
        help="executor of the runs: local (processes on this machine), dask (a new cluster of -j workers), dask:tcp://HOST:PORT "
        "(an existing cluster), slurm[:PARTITION]; -j limits the concurrent runs (default: %(default)s)",
    )  # fmt: skip
    advanced.add_argument(
        "--verify-sample", metavar="FRACTION",
        help="fraction of the runs under virtual time to repeat, on other workers if possible, and to compare: 1%% (default: none)",
    )  # fmt: skip
    flags.add_retries(advanced)
    flags.add_external(
        advanced, "permission to execute code (topology, congestion control, program) that the files name, as root"
    )
    advanced.add_argument(
        "--measure", choices=["backend", "flags"],
        help="measurement of --on (host, vagrant, ssh:HOST), without a run; backend: prints the backend that can run these experiments: "
        "that one, uml, or vagrant-uml (the user-mode kernel of the VM); flags: prints the flags with which that one can run the file",
    )  # fmt: skip


def run(parsed: argparse.Namespace) -> int:
    from testbed.campaign import schedule_tables as study
    from testbed.campaign import sweep_request
    from testbed.campaign.stored import folders
    from testbed.core import locks
    from testbed.core.runs.schedules import TABLE
    from testbed.linux import privileges

    flags.check_retries(parsed.retries)
    given = flags.given(parsed)
    if parsed.on is not None:
        given["on"] = ",".join(parsed.on)
    if parsed.dry_run:
        privileges.give_up()
    studies, files = _apart(parsed)
    if parsed.measure is not None:
        return _measured(parsed.measure, files, given)
    if parsed.dry_run:
        _describe(studies, files, given, parsed)
        return EXIT_OK
    if parsed.json:
        raise RequestError(
            "--json: a sweep prints tables. Add --dry-run for the list of runs, or read each summary.json."
        )
    sweep_request.check_parallel(parsed.parallel, {})
    if not files:
        privileges.give_up()
    sweep_request.check_privileges(files, given)
    out = Path(parsed.out)
    choices, machines = sweep_request.resolve_backends(files, given, out, _left_out) if files else ([], {})
    with locks.held(out) as held:
        if not parsed.quiet:
            for line in _left_out_by_quick(files, given):
                _left_out(line)
        planned = [
            each
            for file, chosen in choices
            for each in folders.named(chosen.planned, out, file, elsewhere=chosen.elsewhere, locks=held, tell=_left_out)
        ]
        for asked in studies:
            folder = study.compute(asked, out, parsed.parallel, flags.again(parsed), held, quiet=parsed.quiet)
            if not parsed.quiet:
                print(text.plain(str(folder / TABLE)), file=sys.stderr)
        return _carried_out(planned, machines, parsed) if files else EXIT_OK


def _apart(parsed: argparse.Namespace) -> tuple[list[Asked], list[str]]:
    """Return the experiments of schedules, and the files of the others; under ``sudo`` they are read without root."""
    from testbed.linux import privileges

    def read() -> tuple[list[Asked], list[str]]:
        computed, others = schedules.apart(parsed.files)
        return [schedules.read(file, quick=parsed.quick, seeds=parsed.seeds) for file in computed], others

    if privileges.caller() is not None:
        if answered := privileges.without_root(lambda: msgspec.json.encode(read())):
            return msgspec.json.decode(answered, type=tuple[list[Asked], list[str]])
        privileges.give_up()  # repeat it as the caller, to raise its error
    return read()


def _describe(studies: list[Asked], files: list[str], given: dict[str, Any], parsed: argparse.Namespace) -> None:
    """Print what would be run: an experiment a line, where its results go, and the expected time; or all of it as JSON."""
    from testbed.backends import choice
    from testbed.campaign import schedule_tables as study
    from testbed.campaign import sweep_request
    from testbed.campaign.stored import folders
    from testbed.cli import dry_run
    from testbed.core.heartbeat import duration

    out, found, lines = Path(parsed.out), list[dict[str, Any]](), [study.described(asked) for asked in studies]
    for file, chosen in sweep_request.possible(files, given, _left_out):
        with within_unless_named(file):
            choice.check_without_run(chosen)
            named = folders.named(chosen.planned, out, file, elsewhere=chosen.elsewhere)
            if chosen.reason is not None:
                lines.append(f"{chosen}:")
            for scenario, plans in named:
                spec = scenario.spec
                about = dry_run.document(plans, out, backend_names.parse(spec.on)[0]) | {"on": spec.on}
                found.append(about)
                lines.append(
                    f"{plans[0].experiment}: {text.count(len(plans), 'run')} of {text.count(len(plans[0].jobs), 'job')}, {' '.join(spec.system)}, on {spec.on}, "
                    f"about {duration(about['expected_s'])}. Results: {about['folder']}"
                )
    runs, total_s = sum(about["runs"] for about in found), sum(about["expected_s"] for about in found)
    total_s = round(total_s / max(1, parsed.parallel), 1)
    if parsed.json:
        computed = [{"experiment": asked.name, "folder": str(out / asked.name)} for asked in studies]
        print(
            json.dumps(
                {"runs": runs, "expected_s": total_s, "experiments": found, "schedules": computed}, allow_nan=False
            )
        )
        return
    if found:
        lines.append(
            f"Total: {text.count(runs, 'run')} of {text.count(len(found), 'experiment')}, about {duration(total_s)}"
        )
    lines += _left_out_by_quick(files, given)
    print("\n".join(map(text.plain, lines)))


def _left_out_by_quick(files: Sequence[str], given: Mapping[str, Any]) -> list[str]:
    """Of a quick set a line that names the experiments with fewer points than in full, smallest shares first; else nothing."""
    if not given.get("quick"):
        return []
    points = [(Path(file).stem, len(sweep.read(file, dict(given))), _points_in_full(file, given)) for file in files]
    fewer = sorted((kept / every, name, kept, every) for name, kept, every in points if kept < every)
    if not fewer:
        return []
    counts = ", ".join(f"{name} {kept} of {every}" for _, name, kept, every in fewer)
    return [f"The quick set keeps fewer points of: {counts}."]


def _points_in_full(file: str, given: Mapping[str, Any]) -> int:
    """The number of points of an experiment without --quick; 0 where the flags fit the quick set alone."""
    try:
        return len(sweep.read(file, {**given, "quick": None}))
    except RequestError:
        return 0


def _measured(what: str, files: Sequence[str], given: dict[str, Any]) -> int:
    """Print the backend that can run ``files``, or the flags for the measured backend; reasons go to stderr."""
    from testbed import backends
    from testbed.campaign import proposal
    from testbed.campaign.executors import reach

    name = given.get("on", backend_names.EXACT)
    if not backend_names.in_real_time(name) or len(backend_names.parse(name)) > 1:
        raise RequestError("--measure: measures one backend with a real clock. Name it: --on host or --on vagrant.")
    if what == "flags" and len(files) != 1:
        raise RequestError(
            f"--measure flags: {len(files)} files are named. Name one experiment that runs against a real clock."
        )
    needed = reach.needs(plan for file in files for _, plans in _in_real_time(file, given) for plan in plans)
    mtus = {need.mtu for need in needed}
    if mtus:
        print(f"measuring what `{name}` carries", file=sys.stderr)
    backend = backends.find(name, list(map(reach.probe, mtus)))
    found = reach.measure(backend, mtus)
    if what == "flags":
        print(shlex.join(proposal.fitting(files[0], given, found, backend, _left_out)))
        return EXIT_OK
    decision = reach.decide(name, found, needed, reach.user_mode_kernels(name))
    print(text.paragraph(str(decision)), file=sys.stderr)
    print(decision.backend)
    return EXIT_OK


def _in_real_time(file: str, given: dict[str, Any]) -> list[Planned]:
    """The experiments of a file as they run against a real clock; none if they cannot."""
    from testbed.planning.plan import planned

    try:
        with within_unless_named(file):
            return [planned(spec) for spec in sweep.read(file, given)]
    except VirtualTimeOnlyError:
        return []


def _carried_out(planned: list[Planned], machines: dict[str, Backend], parsed: argparse.Namespace) -> int:
    """Run what is missing and summarise every experiment. Returns an exit code."""
    from testbed.campaign import driver, sweep_request
    from testbed.campaign.executors import choice
    from testbed.campaign.stored import folders
    from testbed.cli.console import Count
    from testbed.core import terminal

    def able(run: Wanted) -> list[Backend]:
        return [machines[name] for name in backend_names.parse(run.spec.on)]

    choice.check(parsed.executor, machines)
    share = None if parsed.verify_sample is None else parse_fraction(parsed.verify_sample)
    sweep_request.check_parallel(parsed.parallel, machines)
    work = folders.work(planned, Path(parsed.out), able, flags.again(parsed))
    order, waiting = sweep_request.in_order(work)
    kept = [run for run in work.kept if not run.waits]
    terminal.say_error(
        f"{text.count(len(work.asked), 'run')} of {text.count(len(planned), 'experiment')}, {len(kept)} already stored"
        + (f"; {waiting} wait for those of their jobs in isolation" if waiting else "")
    )
    with (
        choice.chosen(parsed.executor, machines, parsed.parallel, Path(parsed.out), _left_out) as lanes,
        Count(order, terminal.errors(), quiet=parsed.quiet, show_backends=len(lanes) > 1, lanes=len(lanes)) as count,
    ):
        failures = driver.drive(order, lanes, count, retries=parsed.retries, is_there=work.is_there, keep_going=True)
        differing = _verified(order, failures, lanes, share, Path(parsed.out))
    invalid = _sum_up(planned, work, failures, quiet=parsed.quiet)
    for failure in failures:
        print(text.paragraph(f"failed: {failure.run.folder}: {failure.error}"), file=sys.stderr)
    if failures:
        print(
            f"{len(failures)} of {text.count(len(work.asked), 'run')} failed; the same command tries them again.",
            file=sys.stderr,
        )
        return EXIT_FAILED
    if differing:
        print(text.paragraph(f"other bytes when repeated: {', '.join(differing)}"), file=sys.stderr)
        return EXIT_FAILED
    return EXIT_INVALID if invalid else EXIT_OK


def _left_out(words: str) -> None:
    print(text.paragraph(words), file=sys.stderr)


def _verified(
    runs: Sequence[Wanted], failures: Sequence[Failure], lanes: Sequence[Executor], share: float | None, out: Path
) -> Sequence[str]:
    """Repeat a fraction ``share`` of the new runs, store the result below ``out``, and return the folders of those
    that differ."""
    from testbed.campaign import determinism_check
    from testbed.core.runs import determinism_log, documents, rundir

    if share is None:
        return []
    failed = {failure.run.folder for failure in failures}
    again = determinism_check.drawn([run for run in runs if run.folder not in failed], share)
    sample = determinism_log.Sample(len(runs), len(again), tuple(determinism_check.differing(again, lanes)))
    rundir.write_text(out / determinism_log.FILE, documents.encode(sample).decode())
    print(f"Repeated {sample}.")
    return sample.differing


def _sum_up(planned: list[Planned], work: Work, failures: Sequence[Failure], *, quiet: bool) -> bool:
    """Write every complete experiment's summary and print its table; whether any of them is invalid."""
    from testbed.campaign import driver
    from testbed.cli import run_summary
    from testbed.cli.table import closing_table
    from testbed.core import terminal
    from testbed.core.heartbeat import Counter, Heartbeat

    console = terminal.console()
    failed = {failure.run.folder for failure in failures}
    invalid = False
    counter = Counter(len(planned), "summaries")
    with Heartbeat(counter.line, active=not quiet):
        for scenario, _ in planned:
            own = work.summed_up(scenario)
            counter.advance()
            if failed & {run.folder for run in own}:
                continue
            summary = driver.sum_up(own)
            closing_table(summary).print(console)
            run_summary.say(console, summary)
            invalid |= summary.verdict == "invalid"
    return invalid

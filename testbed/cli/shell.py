"""``mltcp shell``: a network with Mininet's command line, before an experiment starts and while it runs."""

from __future__ import annotations

import argparse
import itertools
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from testbed.cli import flags
from testbed.cli import run as runs
from testbed.core.errors import EXIT_INTERRUPTED, EXIT_INVALID, EXIT_OK, RequestError, within_unless_named
from testbed.core.text import quoted
from testbed.spec import backend_names

if TYPE_CHECKING:
    from testbed.backends.choice import Choice
    from testbed.campaign.driver import Wanted

DESCRIPTION = """Build the network of an experiment and open Mininet's command line in it: l1 ping r1, iperf, links, dump, py, and
run, which starts the experiment. Takes the flags of `mltcp run`. Commands may come from a pipe."""
HERE = ("uml", "host")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = DESCRIPTION
    runs.add_experiment(
        parser, "permission to execute code (topology, congestion control, program) that the experiment's file names"
    )
    parser.add_argument(
        "--script", metavar="FILE",
        help="Mininet script to execute instead of the command line; its network is the default of --topo",
    )  # fmt: skip


def run(parsed: argparse.Namespace) -> int:
    from testbed.backends.visit import LeftError
    from testbed.campaign import driver
    from testbed.campaign.executors import Here
    from testbed.campaign.request import Request
    from testbed.cli.console import Progress
    from testbed.cli.shell_terminal import Display, Terminal
    from testbed.core import terminal
    from testbed.core.runs.shell import ShellRequest

    given = flags.given(parsed)
    if parsed.script and not Path(parsed.script).is_file():
        raise RequestError(f"--script: there is no file {quoted(parsed.script)}.")
    if parsed.script and parsed.file is None:
        given = {"topo": parsed.script, "jobs": 1, **given}
    asked = Request(parsed.file, given, Path(parsed.out), parsed.linux_source)
    chosen = asked.choice()
    if chosen.backend not in HERE:
        remote = backend_names.is_remote(chosen.backend)
        instead = "Start `mltcp shell` on that machine." if remote else "Use --on uml or --on host."
        raise RequestError(f"--on {chosen.backend}: a shell needs hosts of this machine. {instead}")
    with within_unless_named(parsed.file):
        wanted = _first(chosen, Path(parsed.out))
    chosen, backend = asked.resolve_backend(chosen)
    if chosen.reason is not None:
        terminal.say_error(chosen)
    request = ShellRequest(str(Path.cwd()), script=parsed.script and str(Path(parsed.script).resolve()))
    display, notes = Display(), terminal.errors()
    visited = Terminal(display).visit(backend, request)
    progress = Progress([wanted.plan], notes, chosen.backend, quiet=not notes.is_terminal)
    try:
        with progress, display.of(progress):
            driver.drive([wanted], [Here(visited, progress)], progress, retries=0)
            summary = driver.sum_up([wanted])
    except LeftError as left:
        if not left.paused:
            return EXIT_OK
        terminal.say_error(left)
        return EXIT_INTERRUPTED
    runs.show_summary(summary, [wanted], None, as_json=False)
    return EXIT_INVALID if summary.verdict == "invalid" else EXIT_OK


def _first(chosen: Choice, out: Path) -> Wanted:
    """The first run with all jobs, under a separate name; raises `RequestError`."""
    from testbed.campaign.driver import Wanted

    ((scenario, plans),) = chosen.planned
    plan = next(plan for plan in plans if plan.alone is None)
    run = Wanted(scenario, plan, out)
    if run.waits:
        raise RequestError(
            f"system: {plan.system.label} needs runs of its jobs in isolation first. Use `mltcp run --pause-at TIME`."
        )
    names = itertools.chain([f"{plan.experiment}-shell"], (f"{plan.experiment}-shell-{n}" for n in itertools.count(2)))
    name = next(name for name in names if not (out / name).exists())
    return Wanted(scenario, msgspec.structs.replace(plan, experiment=name), out)

"""``mltcp ping``: the idle round trips between all hosts of an experiment's network, expected next to measured."""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path

from testbed.cli import flags
from testbed.cli import run as runs
from testbed.core.errors import EXIT_OK, RequestError, TestbedError

DESCRIPTION = """Build the network of an experiment and measure the idle round trip between every two hosts. Takes the flags of
`mltcp run`. Each cell is the expected and the measured time in ms: the median of five pings of 60 bytes."""
HERE = ("uml", "host")
PINGS = 5
BYTES = 60 - 14 - 20 - 8  # payload of frames of 60 bytes, for which the expected time is computed
ANSWER = re.compile(r"time=([\d.]+) ms")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = DESCRIPTION
    runs.add_experiment(
        parser, "permission to execute code (topology, congestion control, program) that the experiment's file names"
    )


def run(parsed: argparse.Namespace) -> int:
    from testbed.backends.progress import patience
    from testbed.backends.visit import LeftError, Visit, Visited
    from testbed.campaign.request import Request
    from testbed.core import terminal
    from testbed.core.runs.events import Output, Prompt
    from testbed.core.runs.shell import Answer, ShellRequest
    from testbed.planning.links import base_rtt_s

    asked = Request(parsed.file, flags.given(parsed), Path(parsed.out), parsed.linux_source)
    chosen = asked.choice()
    if chosen.backend not in HERE:
        raise RequestError(f"--on {chosen.backend}: pings need hosts of this machine. Use --on uml or --on host.")
    chosen, backend = asked.resolve_backend(chosen)
    ((scenario, plans),) = chosen.planned
    plan = next(plan for plan in plans if plan.alone is None)
    topo = scenario.network.topo
    hosts = [node for node in topo.hosts() if not topo.isRouter(node)]
    pairs = [(a, b) for a in hosts for b in hosts if a != b]
    lines = iter([f"{a} ping -n -c {PINGS} -i 0.2 -s {BYTES} {b}" for a, b in pairs])
    printed: list[list[str]] = []

    def answer(event: Prompt | Output) -> Answer:
        if isinstance(event, Prompt):
            printed.append([])
            return Answer(next(lines, None))
        printed[-1].append(event.text)
        return Answer()

    try:
        Visited(backend, Visit(ShellRequest(str(Path.cwd())), answer)).run(plan, lambda _event: None, patience(plan))  # type: ignore[arg-type]
    except LeftError:
        pass
    rows = {}
    for (a, b), texts in zip(pairs, printed, strict=False):
        times = sorted(map(float, ANSWER.findall("".join(texts))))
        if not times:
            raise TestbedError(f"no ping came back to {a} from {b}: {''.join(texts).strip() or 'ping printed nothing'}")
        rows[a, b] = f"{base_rtt_s(scenario.network, a, b) * 1e3:.3f} {times[len(times) // 2]:.3f}"
    sheet = terminal.Sheet(
        [terminal.Column("from"), *(terminal.Column(host, right=True) for host in hosts)],
        [[a, *(rows.get((a, b), "–") for b in hosts)] for a in hosts],
        title=f"Round trips on {chosen.backend}, expected and measured, in ms",
    )
    sheet.print(terminal.console())
    sys.stdout.flush()
    return EXIT_OK

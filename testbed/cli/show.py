"""Print a trace as a table and draw it: timeline, demand over the iteration, CASSINI's circle."""

from __future__ import annotations

import argparse
from pathlib import Path

from rich.console import Console

from testbed.cli import flags
from testbed.cli.show_groups import View
from testbed.core import terminal
from testbed.core.errors import within
from testbed.core.terminal import Column, Sheet
from testbed.core.text import file_name, plain, shown
from testbed.core.units import Rate, parse_fraction
from testbed.traces import trace as traces
from testbed.traces.devices import Bandwidth, Flops
from testbed.traces.trace import Trace

MOST_ROWS = 200  # rows of the table: the first and the last ones


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("trace", help=f"trace: a file, or one of the library: {', '.join(traces.names())}")
    parser.add_argument("--rate", metavar="RATE", help="rate of every worker's link (default: the trace's native rate)")
    parser.add_argument("--workers", type=int, metavar="N", help="number of workers (default: the trace's ranks, or 2)")
    flags.add(parser, "device", "peak", "mfu", "memory", "keep_duty")
    parser.add_argument(
        "-o", "--out", type=Path, metavar="FILE", help="file of the drawing: .png, .pdf or .svg (default: NAME.png)"
    )


def run(parsed: argparse.Namespace) -> int:
    from testbed.traces.drawing import draw  # matplotlib takes long to import

    mfu = None if parsed.mfu is None else parse_fraction(parsed.mfu)
    peak = None if parsed.peak is None else Flops.parse(parsed.peak)
    memory = None if parsed.memory is None else Bandwidth.parse(parsed.memory)
    trace = traces.load(parsed.trace)
    trace = trace.timed(trace.computed_by(parsed.device, peak, mfu, memory))
    with within("--rate"):
        rate = Rate.parse(parsed.rate) if parsed.rate else trace.native_rate or Rate(10**10)
    if rate < 1000:
        raise traces.TraceError(f"--rate: {rate} is too low to replay a trace. Give 1kbit or more.")
    if parsed.workers is not None and not 2 <= parsed.workers <= 64:
        raise traces.TraceError(f"--workers: {shown(parsed.workers)} is not between 2 and 64")
    out = parsed.out or Path(f"{file_name(trace.name)}.png")
    if out.suffix not in (".png", ".pdf", ".svg"):
        raise traces.TraceError(f"--out: {shown(out, 200)} must end in .png, .pdf or .svg")
    if parsed.keep_duty:
        trace = trace.scaled(rate)
    console = terminal.console(usual=110)
    if not trace.alike:
        if parsed.workers not in (None, trace.ranks):
            raise traces.TraceError(
                f"--workers: {shown(parsed.workers)} does not fit {shown(trace.name)}, which has {trace.ranks} ranks. Leave it out."
            )
        view = View(trace, rate)
        head = describe_source(trace)
        _print(console, [*head, view.groups(), view.roles(), view.summary(), *assumptions(trace)])
        view.draw(out)
    else:
        trace, workers = trace.one_list, parsed.workers or trace.ranks or 2
        _print(console, describe(trace, workers, rate))
        draw(trace, workers, rate, out)
    console.print(f"Drawing: {shown(out, 200)}")
    return 0


def _print(console: Console, lines: list[str | Sheet]) -> None:
    for line in lines:
        if isinstance(line, Sheet):
            line.print(console)
        else:
            terminal.say(console, line)


def busy_s(trace: Trace, workers: int, rate_bps: int) -> float:
    """Seconds of an iteration alone in which collectives go on."""
    times = traces.spans(trace, lambda op: traces.busiest_s(op, workers, rate_bps))
    return sum(times[op.id][1] - times[op.id][0] for op in trace.operations if op.kind != "compute")


def describe(trace: Trace, workers: int, rate: Rate) -> list[str | Sheet]:
    """A trace as text and a table: its operations, and its iteration with ``workers`` workers at ``rate``."""
    times = traces.spans(trace, lambda op: traces.busiest_s(op, workers, rate))
    period = max(end for _, end in times.values())
    headings = ("operation", "kind", "start (ms)", "takes (ms)", "bytes", "after")
    columns = [Column(heading, right="(ms)" in heading or heading == "bytes") for heading in headings]
    cells: list[list[str]] = []
    rows = trace.operations
    if len(rows) > MOST_ROWS:
        rows = rows[: MOST_ROWS // 2] + rows[-MOST_ROWS // 2 :]
    for number, op in enumerate(rows):
        if len(rows) < len(trace.operations) and number == MOST_ROWS // 2:
            cells.append([f"… {len(trace.operations) - MOST_ROWS:,} more", *[""] * 5])
        start, end = times[op.id]
        cells.append([
            shown(op.id), op.algorithm or op.kind, f"{start * 1e3:.3f}", f"{(end - start) * 1e3:.3f}",
            "" if op.bytes is None else f"{int(op.bytes):,}", _shorter(op.after),
        ])  # fmt: skip
    busy = busy_s(trace, workers, rate)
    return [
        *describe_source(trace),
        Sheet(columns, cells),
        f"{workers} workers at {rate}: iteration {period * 1e3:.3f} ms, {trace.bytes_per_iteration:,} bytes, communicating "
        f"{busy * 1e3:.3f} ms ({busy / period:.1%}); noise {trace.noise}",
        *assumptions(trace),
    ]


def describe_source(trace: Trace) -> list[str]:
    """The name, model and origin of a trace, a line each."""
    return [
        f"{shown(trace.name)}: {shown(trace.model, 200)}" if trace.model else shown(trace.name),
        trace.source.kind
        + (f": {plain(trace.source.measured_by)}" if trace.source.measured_by else "")
        + (f"; on {plain(trace.source.on)}" if trace.source.on else ""),
    ]


def assumptions(trace: Trace) -> list[str]:
    """The assumptions of a trace, a line each."""
    return [f"Assumption: {plain(text)}." for text in trace.assumptions]


def _shorter(names: tuple[str, ...]) -> str:
    few = names if len(names) <= 3 else (names[0], f"… {names[-1]} ({len(names)})")
    return ", ".join(map(shown, few))

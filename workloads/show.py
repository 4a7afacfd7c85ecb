"""``python -m workloads show TRACE``: a trace as a table, and drawn.

The drawing has the timeline of computing and collectives, the demand over the iteration
as a line, and the same around CASSINI's circle (Rajasekaran et al., NSDI 2024), whose
perimeter is one iteration: jobs are compatible if their circles can be turned so that
their demands do not meet.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from rich.console import Console
from rich.table import Table

from workloads import trace as traces
from workloads.trace import Operation, Trace
from workloads.units import Rate, UnitError

COMPUTE, COMMUNICATE, GREY = "#8c8c8c", "#0072b2", "#444444"
UNIT = 1e9  # rates are drawn in Gbit/s


def configure(parser: argparse.ArgumentParser) -> None:
    parser.description = "Print a trace and draw it: timeline, demand over the iteration, CASSINI's circle."
    parser.add_argument("trace", help=f"a file, or one of the library: {', '.join(traces.names())}")
    parser.add_argument("--rate", help="of every worker's link (the trace's native rate)")
    parser.add_argument("--workers", type=int, default=2, help="(2)")
    parser.add_argument("-o", "--out", type=Path, help="the drawing: .png, .pdf or .svg (NAME.png)")
    parser.set_defaults(run=run)


def run(parsed: argparse.Namespace) -> int:
    trace = traces.load(parsed.trace)
    try:
        rate = Rate.parse(parsed.rate) if parsed.rate else trace.native_rate or Rate(10**10)
    except UnitError as error:
        raise traces.TraceError(f"--rate: {error}") from error
    if not 2 <= parsed.workers <= 64:
        raise traces.TraceError(f"--workers: {parsed.workers} is not between 2 and 64")
    out = parsed.out or Path(f"{trace.name}.png")
    if out.suffix not in (".png", ".pdf", ".svg"):
        raise traces.TraceError(f"--out: {out} must end in .png, .pdf or .svg")
    trace = trace.scaled(rate)
    console = Console(width=None if Console().is_terminal else 110)
    for line in describe(trace, parsed.workers, rate):
        console.print(line, highlight=False, soft_wrap=isinstance(line, str))
    draw(trace, parsed.workers, rate, out)
    console.print(f"Drawing: {out}", highlight=False, soft_wrap=True)
    return 0


def busy_s(trace: Trace, workers: int, rate_bps: int) -> float:
    """Seconds of an iteration alone in which collectives go on."""
    times = traces.schedule(trace, lambda op: traces.busiest_s(op, workers, rate_bps))
    return sum(times[op.id][1] - times[op.id][0] for op in trace.operations if op.kind != "compute")


def describe(trace: Trace, workers: int, rate: Rate) -> list[str | Table]:
    times = traces.schedule(trace, lambda op: traces.busiest_s(op, workers, rate))
    period = max(end for _, end in times.values())
    table = Table(box=None, pad_edge=False, header_style="dim")
    for heading, side in (("operation", "left"), ("kind", "left"), ("start (ms)", "right"), ("takes (ms)", "right"),
                          ("bytes", "right"), ("after", "left")):  # fmt: skip
        table.add_column(heading, justify=side)  # type: ignore[arg-type]
    for op in trace.operations:
        start, end = times[op.id]
        table.add_row(
            op.id, op.algorithm or op.kind, f"{start * 1e3:.3f}", f"{(end - start) * 1e3:.3f}",
            "" if op.bytes is None else f"{int(op.bytes):,}", _shorter(op.after),
        )  # fmt: skip
    busy = busy_s(trace, workers, rate)
    lines: list[str | Table] = [
        f"{trace.name}: {trace.model}",
        f"{trace.source.kind}: {trace.source.measured_by}" + (f"; on {trace.source.on}" if trace.source.on else ""),
        table,
        f"{workers} workers at {rate}: iteration {period * 1e3:.3f} ms, {trace.bytes_per_iteration:,} bytes, communicating "
        f"{busy * 1e3:.3f} ms ({busy / period:.1%}); noise {trace.noise}",
    ]
    return lines + [f"Assumption: {text}." for text in trace.assumptions]


def _shorter(names: tuple[str, ...]) -> str:
    return ", ".join(names) if len(names) <= 3 else f"{names[0]}, … {names[-1]} ({len(names)})"


def demand(trace: Trace, workers: int, rate_bps: int) -> tuple[float, list[tuple[float, float, float]]]:
    """Period in seconds, and (start, end, bit/s) of what the busiest worker sends or receives."""
    times = traces.schedule(trace, lambda op: traces.busiest_s(op, workers, rate_bps))
    spans: list[tuple[float, float, float]] = []
    for op in trace.operations:
        start, end = times[op.id]
        if op.kind == "compute" or start == end:
            continue
        if spans and start - spans[-1][1] < 1e-9:  # goes on where the one before has ended
            start = spans.pop()[0]
        spans.append((start, end, float(rate_bps)))
    return max(end for _, end in times.values()), spans


def draw(trace: Trace, workers: int, rate: Rate, out: Path) -> None:
    """Timeline and demand beside CASSINI's circle."""
    period, spans = demand(trace, workers, rate)
    times = traces.schedule(trace, lambda op: traces.busiest_s(op, workers, rate))
    figure = Figure(figsize=(11, 4.4), layout="constrained")
    FigureCanvasAgg(figure)
    grid = figure.add_gridspec(2, 2, width_ratios=(2.3, 1), height_ratios=(1, 1))
    timeline, line = figure.add_subplot(grid[0, 0]), figure.add_subplot(grid[1, 0])
    circle = figure.add_subplot(grid[:, 1], projection="polar")
    _timeline(timeline, trace.operations, times, period)
    _line(line, period, spans)
    _circle(circle, period, spans)
    figure.suptitle(f"{trace.name}: one iteration of {workers} workers at {rate}", x=0.01, ha="left", fontweight="bold")
    figure.savefig(out, dpi=150)


def _timeline(
    axis: Any, operations: tuple[Operation, ...], times: dict[str, tuple[float, float]], period: float
) -> None:
    for op in operations:
        start, end = (value * 1e3 for value in times[op.id])
        computing = op.kind == "compute"
        axis.barh(
            1 if computing else 0, end - start, left=start, height=0.6, linewidth=0.5, edgecolor="white",
            color=COMPUTE if computing else COMMUNICATE,
        )  # fmt: skip
        if end - start > 0.08 * period * 1e3:
            axis.text(
                (start + end) / 2, 1 if computing else 0, op.id, ha="center", va="center", color="white", fontsize=8
            )
    axis.set_yticks([1, 0], ["compute", "collectives"])
    axis.set_ylim(-0.5, 1.5)
    axis.set_xlim(0, period * 1e3)
    axis.spines[["top", "right"]].set_visible(False)


def _line(axis: Any, period: float, spans: list[tuple[float, float, float]]) -> None:
    edges = [(0.0, 0.0)]
    for start, end, bps in spans:
        edges += [(start, 0.0), (start, bps / UNIT), (end, bps / UNIT), (end, 0.0)]
    edges.append((period, 0.0))
    x, y = np.array(edges).T
    axis.fill_between(x * 1e3, y, color=COMMUNICATE, alpha=0.35, linewidth=0)
    axis.plot(x * 1e3, y, color=COMMUNICATE, linewidth=1.2)
    axis.set_xlim(0, period * 1e3)
    axis.set_ylim(bottom=0)
    axis.set_xlabel("time in the iteration (ms)")
    axis.set_ylabel("demand (Gbit/s)")
    axis.spines[["top", "right"]].set_visible(False)


def _circle(axis: Any, period: float, spans: list[tuple[float, float, float]]) -> None:
    axis.set_theta_zero_location("N")
    axis.set_theta_direction(-1)
    top = max((bps for *_, bps in spans), default=1.0)
    for start, end, bps in spans:
        angles = np.linspace(2 * np.pi * start / period, 2 * np.pi * end / period, 90)
        axis.fill_between(angles, 1.0, 1.0 + 0.5 * bps / top, color=COMMUNICATE, alpha=0.6, linewidth=0)
    axis.plot(np.linspace(0, 2 * np.pi, 361), np.ones(361), color=GREY, linewidth=1)
    axis.set_ylim(0, 1.5)
    axis.set_yticks([])
    axis.set_xticks(
        np.linspace(0, 2 * np.pi, 4, endpoint=False),
        [f"{period * share * 1e3:.4g} ms" for share in (0, 0.25, 0.5, 0.75)],
    )
    axis.text(0, 0, f"perimeter\n{period * 1e3:.4g} ms", ha="center", va="center", color=GREY)
    axis.grid(False)
    axis.tick_params(pad=9)
    axis.spines["polar"].set_visible(False)

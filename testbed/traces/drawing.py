"""Draw a trace: timeline, demand over the iteration, and CASSINI's circle.

The perimeter of the circle (Rajasekaran et al., NSDI 2024) is one iteration. Jobs are compatible if their circles can
be rotated so that their demands do not overlap.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib import rc_context
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from testbed.core.text import decimal, shown
from testbed.core.units import Rate
from testbed.traces import trace as traces
from testbed.traces.trace import Trace

COMPUTE, COMMUNICATE, GREY = "#8c8c8c", "#0072b2", "#444444"
LETTER = 0.0115  # of the width of the timeline
MOST_EDGES = 2000  # bars that are outlined
UNIT = 1e9  # rates are drawn in Gbit/s


def demand(trace: Trace, workers: int, rate_bps: int) -> tuple[float, list[tuple[float, float, float]]]:
    """Return the period in seconds, and (start s, end s, bit/s) of the traffic of the busiest worker."""
    times = traces.spans(trace, lambda op: traces.busiest_s(op, workers, rate_bps))
    spans: list[tuple[float, float, float]] = []
    for op in trace.operations:
        start, end = times[op.id]
        if op.kind == "compute" or start == end:
            continue
        if spans and start - spans[-1][1] < 1e-9:  # continues at the end of the previous one
            start = spans.pop()[0]
        spans.append((start, end, float(rate_bps)))
    return max(end for _, end in times.values()), spans


@dataclass(frozen=True)
class Lane:
    """A row of the timeline: name, start and end in seconds."""

    label: str
    computing: bool
    bars: list[tuple[str, float, float]]


def draw(trace: Trace, workers: int, rate: Rate, out: Path) -> None:
    """Timeline and demand next to CASSINI's circle."""
    period, spans = demand(trace, workers, rate)
    times = traces.spans(trace, lambda op: traces.busiest_s(op, workers, rate))
    lanes = [
        Lane(label, computes, [(op.id, *times[op.id]) for op in trace.operations if op.computes == computes])
        for label, computes in (("compute", True), ("collectives", False))
    ]
    draw_lanes(f"{shown(trace.name)}: one iteration of {workers} workers at {rate}", lanes, period, spans, out)


def draw_lanes(
    title: str, lanes: Sequence[Lane], period: float, spans: list[tuple[float, float, float]], out: Path
) -> None:
    """Draw any lanes; ``spans``: start s, end s and bit/s of the demand, in order."""
    with rc_context({"text.parse_math": False}):  # a name is not markup
        figure = Figure(figsize=(11, 4.4 + 0.35 * max(0, len(lanes) - 2)), layout="constrained")
        FigureCanvasAgg(figure)
        heights = (max(1.0, 0.35 * len(lanes)), 1)
        grid = figure.add_gridspec(2, 2, width_ratios=(2.3, 1), height_ratios=heights)
        timeline, line = figure.add_subplot(grid[0, 0]), figure.add_subplot(grid[1, 0])
        circle = figure.add_subplot(grid[:, 1], projection="polar")
        _timeline(timeline, lanes, period)
        _line(line, period, spans)
        _circle(circle, period, spans)
        figure.suptitle(title, x=0.01, ha="left", fontweight="bold")
        figure.savefig(out, dpi=150)


def _timeline(axis: Any, lanes: Sequence[Lane], period: float) -> None:
    for row, lane in zip(range(len(lanes) - 1, -1, -1), lanes, strict=True):
        bars = [(start * 1e3, (end - start) * 1e3) for _, start, end in lane.bars]
        edge = 0.5 if len(bars) <= MOST_EDGES else 0
        colour = COMPUTE if lane.computing else COMMUNICATE
        axis.broken_barh(bars, (row - 0.3, 0.6), color=colour, linewidth=edge, edgecolor="white")
        for name, start, end in lane.bars:
            if end - start > max(0.06, LETTER * (len(shown(name)) + 1)) * period:
                middle = (start + end) / 2 * 1e3
                axis.text(middle, row, shown(name), ha="center", va="center", color="white", fontsize=8)
    axis.set_yticks(range(len(lanes) - 1, -1, -1), [lane.label for lane in lanes])
    axis.set_ylim(-0.5, len(lanes) - 0.5)
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
    for start, end, bps in _arcs(spans, period):
        angles = np.linspace(2 * np.pi * start / period, 2 * np.pi * end / period, 90)
        axis.fill_between(angles, 1.0, 1.0 + 0.5 * bps / top, color=COMMUNICATE, alpha=0.6, linewidth=0)
    axis.plot(np.linspace(0, 2 * np.pi, 361), np.ones(361), color=GREY, linewidth=1)
    axis.set_ylim(0, 1.5)
    axis.set_yticks([])
    axis.set_xticks([])
    for share, across, along in (
        (0, "center", "bottom"),
        (0.25, "left", "center"),
        (0.5, "center", "top"),
        (0.75, "right", "center"),
    ):
        axis.text(2 * np.pi * share, 1.55, f"{decimal(period * share * 1e3)} ms", ha=across, va=along)
    axis.text(0, 0, f"perimeter\n{decimal(period * 1e3)} ms", ha="center", va="center", color=GREY)
    axis.grid(False)
    axis.spines["polar"].set_visible(False)


def _arcs(spans: list[tuple[float, float, float]], period: float) -> list[tuple[float, float, float]]:
    """``spans``, with those joined that look like one on a circle: closer than a thousandth of it."""
    if len(spans) <= 1000:
        return spans
    joined: list[tuple[float, float, float]] = []
    for start, end, bps in spans:
        if joined and start - joined[-1][1] < period / 1000:
            first, _, most = joined.pop()
            joined.append((first, end, max(most, bps)))
        else:
            joined.append((start, end, bps))
    return joined

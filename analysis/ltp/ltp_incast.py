"""LTP in an incast: eight workers push through a short queue, at the kernel's least timeout and at a small one."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import pandas as pd

from testbed.models.statistics import geometric_mean
from testbed.report import drawing, phases, style
from testbed.report.study import Study

ID = "ltp-incast"
POSITION = 210
TITLE = "LTP in an incast: eight workers push through a short queue"
TEXT = (
    "Bars: a mean iteration, from computing over the gather (workers push gradients) to the broadcast (they pull parameters); ticks are "
    "seeds. Beside them the speed-up over the first system, what of the gradients was delivered where that is less than all, and what the queue dropped of all packets. Links drop; DCTCP's mark before. With the "
    "kernel's least timeout of 200 ms one lost tail holds up everybody; with a small one little of LTP's gain is left. Below: the same over messages of 50 kB to 100 MB a worker, and over the queue, with gather and broadcast apart, and what was delivered and dropped."
)
LONG_MS = 200.0
ABOUT = 0.005  # of a gradient
CELL = ["rate_bps", "bytes", "buffer_bytes"]
LTP, WHOLE, PARTIAL = "LTP", "LTP, delivers everything", "TCP that closes early or sends less"
BY_TCP = "LTP, broadcast by TCP"
STOCK, MARKS = "stock TCP", "stock TCP, links that mark"
COLOURS = {
    LTP: style.JOBS[0], WHOLE: style.JOBS[1], PARTIAL: style.JOBS[2], MARKS: style.JOBS[3], BY_TCP: style.JOBS[4], STOCK: style.JOBS[7],
}  # fmt: skip
GAIN = (LTP, WHOLE, PARTIAL, MARKS, BY_TCP)
PHASES = (LTP, WHOLE, BY_TCP, STOCK)
PARTS = (LTP, PARTIAL)
PANELS = {
    "speed_up": (GAIN, "× as fast as the\nfastest stock TCP"), "gather_s": (PHASES, "gather (ms)"), "broadcast_s": (PHASES, "broadcast (ms)"),
    "delivered": (PARTS, "of the gradients\ndelivered (%)"), "dropped": (tuple(COLOURS), "of all packets\ndropped (%)"),
}  # fmt: skip
UNITS = {"speed_up": 1.0, "gather_s": 1e3, "broadcast_s": 1e3, "delivered": 100.0, "dropped": 100.0}


def draw(study: Study, out: Path) -> list[Path]:
    """Write ``ltp-incast.{png,pdf,csv}``, a row per run, and ``ltp-incast-sizes.{png,pdf,csv}``, a row per speed-up."""
    rows = phases.table(study)
    systems = rows.groupby(CELL)["system"].transform("nunique")
    drawn = phases.figure(
        study, rows[systems == systems.max()], CELL, "rto_ms",
        lambda one: f"{drawing.rate(one['rate_bps'])}, {drawing.size(one['bytes'])} a worker,\nqueue {drawing.size(one['buffer_bytes'])}, least timeout {one['rto_ms']:g} ms",
    )  # fmt: skip
    gains = _gains(study, rows)
    return [*drawing.save(drawn, rows, out, ID), *drawing.save(_over_sizes(study, gains), gains, out, f"{ID}-sizes")]


def _gains(study: Study, rows: pd.DataFrame) -> pd.DataFrame:
    """A row a cell, least timeout, seed and system (by ``kind``): how many times as fast as the fastest stock TCP there behind links that
    drop, as LTP's do, and what was delivered and dropped."""
    own, found = phases.lossy(study), []
    for _, cell in rows.groupby([*CELL, "rto_ms"]):
        stock = phases.best(cell, phases.tcp(cell[~cell["marks"]]))
        base = cell[cell["system"] == stock].set_index("seed")["iteration_s"]
        kinds = {
            LTP: own, WHOLE: phases.whole(study), BY_TCP: phases.by_tcp(study), PARTIAL: phases.best(cell, _partial(cell, own)[0]),
            MARKS: phases.best(cell, phases.tcp(cell[cell["marks"]])), STOCK: stock,
        }  # fmt: skip
        for kind, system in kinds.items():
            mine = cell[cell["system"] == system].set_index("seed", drop=False)
            ratios = mine.assign(kind=kind, fastest_tcp=stock, speed_up=base / mine["iteration_s"])
            found.append(ratios.dropna(subset="speed_up"))
    columns = [*CELL, "rto_ms", "kind", "system", "fastest_tcp", "seed", *PANELS]
    return pd.concat(found, ignore_index=True)[columns]


def _over_sizes(study: Study, gains: pd.DataFrame) -> Any:
    """Speed-ups, gather and broadcast, what was delivered and what was dropped: over the size of a message, for each rate behind the queue that
    most sizes met, and over the queue."""
    queue = cast(float, gains.groupby("buffer_bytes")["bytes"].nunique().idxmax())
    rates = sorted(gains["rate_bps"].unique(), reverse=True)
    size = cast(float, gains[gains["rate_bps"] == rates[0]].groupby("bytes")["buffer_bytes"].nunique().idxmax())
    behind = gains[gains["buffer_bytes"] == queue]
    panels = [
        (behind[behind["rate_bps"] == rate], "bytes", f"{drawing.rate(rate)}, queue {drawing.size(queue)}", "MB a worker", 1e6)
        for rate in rates
    ]  # fmt: skip
    queues = gains[(gains["rate_bps"] == rates[0]) & (gains["bytes"] == size)]
    panels.append(
        (queues, "buffer_bytes", f"{drawing.rate(rates[0])}, {drawing.size(size)} a worker", "queue (kB)", 1e3)
    )
    drawn, axes = style.new_figure(
        len(PANELS), len(panels), figsize=(1 + 4 * len(panels), 13), sharey="row", sharex="col", height_ratios=[1.5, 1, 1, 1, 1]
    )  # fmt: skip
    for column, (here, x, title, label, unit) in zip(axes.T, panels, strict=True):
        column[0].set(xscale="log", yscale="log", title=title)
        for axis, (value, (kinds, name)) in zip(column, PANELS.items(), strict=True):
            if value in ("gather_s", "broadcast_s"):  # nothing of a small message is seen between two samples
                axis.set_yscale("symlog", linthresh=study.runs[0].plan.sample_ns / 1e6)
            for kind, rto_ms in itertools.product(kinds, sorted(here["rto_ms"].unique(), reverse=True)):
                mine = here[(here["kind"] == kind) & (here["rto_ms"] == rto_ms)]
                _over(axis, mine.assign(x=mine[x] / unit, y=mine[value] * UNITS[value]), kind, rto_ms)
            if axis in axes[:, 0]:
                axis.set_ylabel(name)
            axis.minorticks_off()
        at = sorted(here[x].unique() / unit)
        column[0].axhline(1, color="black", linewidth=0.8)
        column[0].set_yticks([0.5, 1, 2, 5, 10], ["0.5", "1", "2", "5", "10"])
        column[-1].set_xlabel(label)
        column[-1].set_xticks(at, [f"{value:g}" for value in at])
    for axis in (axes[1, 0], axes[2, 0]):
        axis.set_yticks([0, 10, 100, 1000], ["0", "10", "100", "1000"])
    axes[3, 0].set_ylim(0, 105)
    _legend(drawn, axes[-1, 0], sorted(gains["rto_ms"].unique(), reverse=True))
    drawing.caption(
        drawn,
        f"8 workers and a server, {drawing.count(gains['seed'].nunique(), 'seed')} (dots); {drawing.backend(study.runs[0])}. Of each kind of TCP the fastest in that setting, of those that close early or send less only such as deliver no less than LTP, or nearest to it.",
        f"Gather and broadcast are told apart to {study.runs[0].plan.sample_ns / 1e6:g} ms, below which their axes are linear.",
    )
    return drawn


def _over(axis: Any, mine: pd.DataFrame, kind: str, rto_ms: float) -> None:
    """A line through the means of ``y`` at each ``x``; dots are seeds. Where links mark not every setting was run: diamonds, hollow for a small timeout."""
    if kind == MARKS:
        axis.plot(mine["x"], mine["y"], **_diamond(rto_ms))
        return
    means = mine.groupby("x")["y"].agg(geometric_mean if axis.get_yscale() == "log" else "mean")
    axis.plot(means.index, means, _dash(rto_ms), color=COLOURS[kind])
    axis.plot(mine["x"], mine["y"], "o", color=COLOURS[kind], markersize=3.5)


def _dash(rto_ms: float) -> str:
    return "-" if rto_ms >= LONG_MS else "--"


def _diamond(rto_ms: float) -> dict[str, Any]:
    fill = "full" if rto_ms >= LONG_MS else "none"
    return {"marker": "D", "linestyle": "", "markersize": 7, "fillstyle": fill, "color": COLOURS[MARKS], "zorder": 4}


def _legend(drawn: Any, axis: Any, timeouts: Sequence[float]) -> None:
    """Colours are kinds, dashes least timeouts."""
    lines = [
        axis.plot([], [], **(_diamond(LONG_MS) if kind == MARKS else {"color": colour}))[0]
        for kind, colour in COLOURS.items()
    ]
    lines += [axis.plot([], [], _dash(rto_ms), color=style.REFERENCE)[0] for rto_ms in timeouts]
    names = [*COLOURS, *(f"least timeout {rto_ms:g} ms" for rto_ms in timeouts)]
    drawn.legend(lines, names, loc="outside upper center", ncols=3, fontsize=9)


def _partial(cell: pd.DataFrame, own: str) -> tuple[list[str], list[str]]:
    """TCP that goes without a part of the gradients: those that deliver no less than LTP, or nearest to it; and the nearest alone."""
    off = {
        system: phases.delivered_by(cell, system) - phases.delivered_by(cell, own)
        for system in phases.partial_tcp(cell)
    }
    least = min(map(abs, off.values()), default=0.0)
    nearest = [system for system in off if abs(off[system]) <= least + ABOUT]
    return [system for system in off if off[system] >= 0 or system in nearest], nearest

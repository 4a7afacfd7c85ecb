"""LTP in an incast: eight workers push through a short queue, at the kernel's minimum RTO and at a small one."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pandas as pd

from testbed.report import drawing, phases, redrawing, style
from testbed.report.figures import Tables
from testbed.report.study import Study

ID = "ltp-incast"
POSITION = 210
TITLE = "In an incast LTP gains up to ten times with a minimum RTO of 200 ms, at most 1.5 times with 5 ms"
TEXT = (
    "Speed of an iteration relative to the fastest stock TCP on drop-tail links. Rows: the kernel's minimum RTO of 200 ms, then 5 ms, then the share of the "
    "gradients that arrived. Columns: message sizes at two rates, then the queue. Of the TCPs that stop receiving early or send less, the fastest that delivers as much as LTP."
)
ABOUT = 0.005  # of a gradient
CELL = ["rate_bps", "bytes", "buffer_bytes"]
LTP, WHOLE, PARTIAL = "LTP", "LTP, delivers everything", "TCP that closes early or sends less"
BY_TCP = "LTP, broadcast by TCP"
STOCK, MARKS = "stock TCP", "stock TCP, links that mark"
SHOWN = {  # colour, marker, and what a legend calls it
    LTP: (style.JOBS[0], "o", "LTP"), WHOLE: (style.JOBS[1], "s", "LTP, delivers everything"), BY_TCP: (style.JOBS[4], "^", "LTP, broadcast by TCP"),
    PARTIAL: (style.JOBS[2], "v", "TCP that stops early or sends less"), MARKS: (style.JOBS[3], "D", "stock TCP, ECN-marking links"),
}  # fmt: skip
PARTS = (LTP, BY_TCP, PARTIAL)  # of which a part may be missing
MEASURED = ["speed_up", "gather_s", "broadcast_s", "delivered", "dropped"]


def draw(study: Study, out: Path) -> list[Path]:
    """Write ``ltp-incast.{png,pdf,csv}``, a row per run, and ``ltp-incast-sizes.csv``, a row per speed-up."""
    rows = phases.table(study)
    job = study.runs[0].jobs[0]
    note = (
        f"{drawing.count(len(job.hosts) - 1, 'worker')} and a server; {drawing.count(rows['seed'].nunique(), 'seed')} (dots), means, 95 % intervals; "
        f"{drawing.count(job.iterations, 'iteration')}; {drawing.backend(study.runs[0])}."
    )
    return redrawing.publish(plot, {ID: rows, f"{ID}-sizes": _gains(study, rows)}, note, out)


def plot(tables: Tables) -> Any:
    """Speed-ups at each minimum RTO, and what of the gradients arrived: over the size of a message, for each rate behind the queue that most
    sizes met, and over the queue."""
    gains = tables[f"{ID}-sizes"]
    queue = cast(float, gains.groupby("buffer_bytes")["bytes"].nunique().idxmax())
    rates = sorted(gains["rate_bps"].unique(), reverse=True)
    size = cast(float, gains[gains["rate_bps"] == rates[0]].groupby("bytes")["buffer_bytes"].nunique().idxmax())
    behind = gains[gains["buffer_bytes"] == queue]
    columns = [
        (behind[behind["rate_bps"] == rate], "bytes", f"{drawing.rate(int(rate))}, queue {drawing.size(int(queue))}", "MB a worker", 1e6)
        for rate in rates
    ]  # fmt: skip
    queues = gains[(gains["rate_bps"] == rates[0]) & (gains["bytes"] == size)]
    columns.append(
        (
            queues,
            "buffer_bytes",
            f"{drawing.rate(int(rates[0]))}, {drawing.size(int(size))} a worker",
            "queue (kB)",
            1e3,
        )
    )
    timeouts = sorted(gains["rto_ms"].unique(), reverse=True)
    figure, axes = style.new_figure(
        len(timeouts) + 1, len(columns), figsize=(1 + 3.6 * len(columns), 1 + 2.8 * (len(timeouts) + 1)), sharey="row", sharex="col"
    )  # fmt: skip
    for column, (here, x, title, label, unit) in zip(axes.T, columns, strict=True):
        for axis, rto_ms in zip(column, timeouts, strict=False):
            _lines(axis, here[here["rto_ms"] == rto_ms], x, unit, "speed_up", tuple(SHOWN))
            axis.axhline(1, color="black", linewidth=0.8)
        _lines(column[-1], here[here["rto_ms"] == timeouts[0]], x, unit, "delivered", PARTS)
        column[0].set(xscale="log", title=title)
        column[-1].set_xlabel(label)
        at = sorted(here[x].unique() / unit)
        column[-1].set_xticks(at, [f"{value:g}" for value in at])
        column[-1].minorticks_off()
    for axis, rto_ms in zip(axes[:, 0], timeouts, strict=False):
        axis.set_ylabel(f"× the fastest stock TCP\nminimum RTO {rto_ms:g} ms")
    drawing.plain_log(axes[0, 0].yaxis)
    axes[-1, 0].set_ylabel("share of the\ngradients delivered")
    figure.legend(*axes[0, 0].get_legend_handles_labels(), loc="outside upper center", ncols=3, fontsize=9)
    return figure


def _lines(axis: Any, rows: pd.DataFrame, x: str, unit: float, y: str, kinds: tuple[str, ...]) -> None:
    """A line a kind through its means; of links that mark, where not every setting was run, the means alone."""
    for kind in kinds:
        colour, marker, name = SHOWN[kind]
        mine = rows[rows["kind"] == kind]
        drawing.trend(
            axis, mine.assign(**{x: mine[x] / unit}), x, y, colour, label=name, marker=marker, line="" if kind == MARKS else "-"
        )  # fmt: skip


def _gains(study: Study, rows: pd.DataFrame) -> pd.DataFrame:
    """A row a cell, minimum RTO, seed and system (by ``kind``): how many times as fast as the fastest stock TCP there behind links that
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
    columns = [*CELL, "rto_ms", "kind", "system", "fastest_tcp", "seed", *MEASURED]
    return pd.concat(found, ignore_index=True)[columns]


def _partial(cell: pd.DataFrame, own: str) -> tuple[list[str], list[str]]:
    """TCP that goes without a part of the gradients: those that deliver no less than LTP, or nearest to it; and the nearest alone."""
    off = {
        system: phases.delivered_by(cell, system) - phases.delivered_by(cell, own)
        for system in phases.partial_tcp(cell)
    }
    least = min(map(abs, off.values()), default=0.0)
    nearest = [system for system in off if abs(off[system]) <= least + ABOUT]
    return [system for system in off if off[system] >= 0 or system in nearest], nearest

"""LTP in an incast: eight workers push through a short queue, at the kernel's least timeout and at a small one."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any, cast

import numpy as np
import pandas as pd

from analysis import drawing, phases, style
from analysis import observations as observed
from analysis.finding import Finding, graded, no_difference, not_measured
from analysis.study import Study
from core.runs.load import LoadError
from theory.statistics import geometric_mean, log_interval, ratio_ends

ID = "ltp-incast"
PAPER = "LTP"
TITLE = "LTP in an incast: eight workers push through a short queue"
TEXT = (
    "Bars: a mean iteration, from computing over the gather (workers push gradients) to the broadcast (they pull parameters); ticks are "
    "seeds. Beside them the speed-up over the first system, what of the gradients was delivered where that is less than all, and what the queue dropped of all packets. Links drop; DCTCP's mark before. With the "
    "kernel's least timeout of 200 ms one lost tail holds up everybody; with a small one little of LTP's gain is left. Below: the same over messages of 50 kB to 100 MB a worker, and over the queue."
)
CLAIM = "LTP shortens the iterations of an incast, which a long tail of latency holds up under TCP."
SMALL = "LTP shortens them beside a TCP with a least timeout of 5 ms, too."
TOLERANCE = "Tolerating loss shortens them beside the same protocol that delivers everything."
NO_GAIN = "Where no link loses, over round trips of at most 0.1 ms and behind a deep queue, LTP that delivers everything takes as long as Reno, to 10 %."
SOURCES = {
    CLAIM: "LTP, abstract [published]",
    SMALL: "ours",
    TOLERANCE: "ours; the abstract attributes the gain to it [published]",
    NO_GAIN: "ours",
}
CONTROLS = dict.fromkeys(SOURCES, "iterations that take 1.4 times the ideal under every transport") | {
    NO_GAIN: "an LTP that takes 1.4 times the ideal beside a base of 1.1 times"
}
CLEAR, LONG_MS = 1.05, 200.0
SHORT_MS, DEEP_BYTES, WITHIN = 0.1, 1_000_000, 0.1
ABOUT = 0.005  # of a gradient
CELL = ["rate_bps", "bytes", "buffer_bytes"]


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
    """A row a cell, least timeout, system of LTP and seed: how many times as fast as the fastest TCP there."""
    found = []
    for (rate, size, buffer, rto_ms), cell in rows.groupby([*CELL, "rto_ms"]):
        beside = phases.best(cell, phases.tcp(cell))
        for system in (phases.lossy(study), phases.whole(study)):
            found += [
                {
                    "rate_bps": rate, "bytes": size, "buffer_bytes": buffer, "rto_ms": rto_ms, "system": system,
                    "fastest_tcp": beside, "speed_up": ratio,
                }
                for ratio in phases.speed_ups(cell, beside, system)
            ]  # fmt: skip
    return pd.DataFrame(found)


def _over_sizes(study: Study, gains: pd.DataFrame) -> Any:
    """Speed-ups over the size of a message, for each rate behind the queue that most sizes met, and over the queue."""
    queue = cast(float, gains.groupby("buffer_bytes")["bytes"].nunique().idxmax())
    rates = sorted(gains["rate_bps"].unique(), reverse=True)
    size = cast(float, gains[gains["rate_bps"] == rates[0]].groupby("bytes")["buffer_bytes"].nunique().idxmax())
    behind = gains[gains["buffer_bytes"] == queue]
    panels = [
        (
            behind[behind["rate_bps"] == rate],
            "bytes",
            f"{drawing.rate(rate)}, queue {queue / 1e3:g} kB",
            "MB a worker",
            1e6,
        )
        for rate in rates
    ]
    queues = gains[(gains["rate_bps"] == rates[0]) & (gains["bytes"] == size)]
    panels.append((queues, "buffer_bytes", f"{drawing.rate(rates[0])}, {size / 1e6:g} MB a worker", "queue (kB)", 1e3))
    drawn, axes = style.new_figure(1, len(panels), figsize=(1 + 4 * len(panels), 4), sharey=True)
    for axis, (here, x, title, label, unit) in zip(axes[0], panels, strict=True):
        for (system, rto_ms), mine in here.groupby(["system", "rto_ms"], sort=False):
            colour = style.JOBS[0 if system == phases.lossy(study) else 1]
            means = mine.groupby(x)["speed_up"].agg(geometric_mean)
            at_x = means.index.to_numpy() / unit
            dash = "-" if rto_ms >= LONG_MS else "--"
            axis.plot(at_x, means, dash, color=colour, label=f"{system}, {rto_ms:g} ms")
            axis.plot(mine[x] / unit, mine["speed_up"], "o", color=colour, markersize=3.5)
        axis.axhline(1, color="black", linewidth=0.8)
        at = sorted(here[x].unique() / unit)
        axis.set(xscale="log", yscale="log", title=title, xlabel=label)
        axis.set_xticks(at, [f"{value:g}" for value in at])
        axis.set_yticks([0.5, 1, 2, 5, 10], ["0.5", "1", "2", "5", "10"])
        axis.minorticks_off()
    axes[0, 0].set_ylabel("× as fast as the fastest TCP")
    drawn.legend(*axes[0, 0].get_legend_handles_labels(), loc="outside upper center", ncols=4, fontsize=9)
    drawing.caption(
        drawn,
        f"8 workers and a server, {drawing.count(gains.groupby([*CELL, 'system', 'rto_ms']).size().max(), 'seed')} (dots); least timeouts as named; {drawing.substrate(study.runs[0])}.",
    )
    return drawn


def find(study: Study) -> list[Finding]:
    """Four findings: at the kernel's least timeout, at a small one, against LTP that loses nothing, and that one where nothing is lost."""
    try:
        rows = phases.table(study)
    except LoadError as error:
        return [not_measured(claim, source, str(error)) for claim, source in SOURCES.items()]
    long, short = rows[rows["rto_ms"] >= LONG_MS], rows[rows["rto_ms"] < LONG_MS]
    return [
        _faster(study, CLAIM, long),
        _faster(study, SMALL, short),
        _faster(study, TOLERANCE, long, phases.whole(study)),
        _alike(study, rows),
    ]


def _faster(study: Study, claim: str, rows: pd.DataFrame, base: str | None = None) -> Finding:
    """Of ``ltp`` over ``base``, or over the fastest stock TCP of a cell; the cell that gains most stands for it."""
    own = phases.lossy(study)
    cells, stock = [], Counter[str]()
    for _, cell in rows.groupby(CELL):
        beside = phases.best(cell, phases.tcp(cell)) if base is None else base
        if ratios := phases.speed_ups(cell, beside, own):
            stock.update(phases.tcp(cell))
            said = (
                f"{observed.with_interval(ratios)}× over {beside} with {phases.delivered_by(cell, own):.1%} delivered"
            )
            if base is None:
                said += "".join(f", {over}" for over in _over_partial(cell, own))
            cells.append((_at(cell), ratios, said))
    if not cells:
        return not_measured(claim, SOURCES[claim], "no cell of that kind was run")
    clear = [ratio_ends(ratios)[0] > CLEAR for _, ratios, _ in cells]
    alike = all(no_difference(ratio_ends(ratios)) for _, ratios, _ in cells)
    where, most, _ = max(cells, key=lambda cell: geometric_mean(cell[1]))
    told = [sure or at == where for (at, _, _), sure in zip(cells, clear, strict=True)]
    return Finding(
        claim, SOURCES[claim],
        f"speed-up of an iteration: surely above {CLEAR} in {sum(clear)} of {len(cells)} settings; "
        + "; ".join(f"{said} ({at})" for (at, _, said), one in zip(cells, told, strict=True) if one)
        + _others([geometric_mean(ratios) for (_, ratios, _), one in zip(cells, told, strict=True) if not one])
        + "".join(f"; {system} was run in {number} of them" for system, number in stock.items() if base is None and number < len(cells)),
        geometric_mean(most), f"× as fast, {where}", log_interval(most), len(most),
        graded(all(clear), any(clear), alike=alike),
        f"reproduced if the speed-up over {base or 'the fastest stock TCP'} is surely above {CLEAR} in every cell, partly if in some; judged: the cell that gains most",
        study.paths,
    )  # fmt: skip


def _over_partial(cell: pd.DataFrame, own: str) -> list[str]:
    """LTP over TCP that goes without as much: the fastest such, and those that deliver nearly what LTP does."""
    partial, nearest = _partial(cell, own)
    return [
        f"{observed.with_interval(ratios)}× over {system} with {phases.delivered_by(cell, system):.1%}"
        for system in dict.fromkeys([phases.best(cell, partial), *nearest])
        if (ratios := phases.speed_ups(cell, system, own))
    ]


def _partial(cell: pd.DataFrame, own: str) -> tuple[list[str], list[str]]:
    """TCP that goes without a part of the gradients: those that deliver no less than LTP, or nearest to it; and the nearest alone."""
    off = {
        system: phases.delivered_by(cell, system) - phases.delivered_by(cell, own)
        for system in phases.partial_tcp(cell)
    }
    least = min(map(abs, off.values()), default=0.0)
    nearest = [system for system in off if abs(off[system]) <= least + ABOUT]
    return [system for system in off if off[system] >= 0 or system in nearest], nearest


def _alike(study: Study, rows: pd.DataFrame) -> Finding:
    """The control: where nothing is to be gained, LTP that delivers everything beside the first TCP."""
    base, own = next(iter(phases.tcp(rows)), ""), phases.whole(study)
    still = rows[(rows["loss"] == 0) & (rows["rtt_ms"] <= SHORT_MS) & (rows["buffer_bytes"] >= DEEP_BYTES)]
    cells = {
        f"{_at(cell)}, least timeout {cell['rto_ms'].iloc[0]:g} ms": ratios
        for _, cell in still.groupby([*CELL, "rto_ms"])
        if (ratios := phases.speed_ups(cell, base, own))
    }
    if not cells:
        return not_measured(
            NO_GAIN, SOURCES[NO_GAIN], f"no queue of {drawing.size(DEEP_BYTES)} was run behind links that lose nothing"
        )
    within = {at: max(abs(1 - end) for end in ratio_ends(ratios)) <= WITHIN for at, ratios in cells.items()}
    worst = max(cells, key=lambda at: abs(np.log(geometric_mean(cells[at]))))
    return Finding(
        NO_GAIN, SOURCES[NO_GAIN],
        f"iteration time of {base} ÷ that of {own}: " + "; ".join(f"{observed.with_interval(ratios)} ({at})" for at, ratios in cells.items()),
        geometric_mean(cells[worst]), f"× as fast as {base}, {worst}", log_interval(cells[worst]), len(cells[worst]),
        graded(all(within.values()), all(abs(1 - geometric_mean(ratios)) <= WITHIN for ratios in cells.values())),
        f"reproduced if the ratio is surely within {WITHIN:.0%} of 1 in every setting without loss, with an idle round trip of at most {SHORT_MS:g} ms and a queue of at least "
        f"{drawing.size(DEEP_BYTES)}, partly if its mean is; judged: the one that is farthest off",
        study.paths,
    )  # fmt: skip


def _at(cell: pd.DataFrame) -> str:
    one = cell.iloc[0]
    return f"{drawing.size(one['bytes'])} a worker, queue {drawing.size(one['buffer_bytes'])}, {drawing.rate(one['rate_bps'])}"


def _others(means: list[float]) -> str:
    return f"; {min(means):.2f}× to {max(means):.2f}× in the {len(means)} others" if means else ""

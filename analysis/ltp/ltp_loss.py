"""LTP over paths that lose packets at random: loss × round-trip time, against every TCP, and against itself without loss."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pandas as pd

from testbed.models.statistics import geometric_mean, log_interval, ratio_ends
from testbed.report import drawing, phases
from testbed.report import observations as observed
from testbed.report.finding import ALIKE, Finding, graded, not_measured, not_measured_without
from testbed.report.study import Study

ID = "ltp-loss"
POSITION = 220
PAPER = "LTP"
TITLE = "LTP over paths that lose: how many times TCP's speed"
TEXT = (
    "Bars: a mean iteration, from computing over the gather to the broadcast; ticks are seeds. Beside them the speed-up over the first system, and "
    "what of the gradients was delivered where that is less than all. Random loss on a long path starves a TCP that takes it for congestion; one that "
    "does not (BBR), or LTP that delivers everything, says how much of the gain is the rate and how much the tolerance."
)
CLAIM = "LTP is up to 30 times as fast as traditional TCP congestion controls."
BEST = "LTP is faster than the best of them where packets are lost at random."
SHORT = "Where a round trip takes at most a millisecond LTP is faster than the best of them, too."
NONE = "Where nothing is lost LTP is no slower than TCP."
SOURCES = {CLAIM: "LTP, abstract [published]", BEST: "ours", SHORT: "ours", NONE: "ours"}
CONTROLS = {
    CLAIM: "iterations that take 1.4 times the ideal under every transport",
    BEST: "iterations that take 1.4 times the ideal under every transport",
    SHORT: "iterations that take 1.4 times the ideal under every transport",
    NONE: "an LTP that takes 1.4 times the ideal beside a base of 1.1 times",
}
TIMES, SOME, WITHIN, SHORT_MS, LONG_MS = 30.0, 3.0, 0.1, 1.0, 200.0
CELL = ["rate_bps", "rtt_ms", "rto_ms"]
Cell = tuple[str, float, pd.DataFrame]  # which, its loss, its rows
Gain = tuple[list[float], str, pd.DataFrame]  # ratios by seed, of which cell, its rows


def draw(study: Study, out: Path) -> list[Path]:
    """Write ``ltp-loss.{png,pdf,csv}``; the data: a row per run."""
    rows = phases.table(study)
    column = rows["loss"] + (rows["rto_ms"] < LONG_MS)  # those with a small timeout to the right of all others
    drawn = phases.figure(
        study, rows.assign(column=column), CELL[:2], "column",
        lambda one: f"{drawing.rate(one['rate_bps'])}, round trip {one['rtt_ms']:g} ms,\nloss {100 * one['loss']:g} %" + _timeout(one, ", "),
    )  # fmt: skip
    return drawing.save(drawn, rows, out, ID)


@not_measured_without(SOURCES)
def find(study: Study) -> list[Finding]:
    """The paper's sentence, the best baseline, the same over short paths, and the control without loss; accuracy is judged in `ltp-accuracy`."""
    rows = phases.table(study)
    cells: list[Cell] = []
    for _, cell in rows.groupby([*CELL, "loss"]):
        loss = float(cell["loss"].iloc[0])
        if phases.tcp(cell) and phases.lossy(study) in set(cell["system"]):
            one = cell.iloc[0]
            at = f"{drawing.rate(one['rate_bps'])}, {one['rtt_ms']:g} ms, {100 * loss:g} % loss" + _timeout(one, ", ")
            cells.append((at, loss, cell))
    usual = _usual(cells)
    fair = [one for one in cells if usual <= set(phases.tcp(one[2]))]
    best = [one for one in fair if one[1] > 0]
    return [
        _most(study, best),
        _best(study, BEST, best),
        _best(study, SHORT, [one for one in best if one[2]["rtt_ms"].iloc[0] <= SHORT_MS]),
        _none(study, [one for one in fair if one[1] == 0]),
    ]


def _timeout(run: pd.Series[Any], before: str) -> str:
    """A least timeout that is not the kernel's own."""
    return f"{before}least timeout {run['rto_ms']:g} ms" if run["rto_ms"] < LONG_MS else ""


def _usual(cells: list[Cell]) -> set[str]:
    """The stock TCPs of most cells: where the runs of one of them are missing, or invalid, the fastest is not known."""
    counts = Counter(base for _, _, cell in cells for base in phases.tcp(cell))
    return {base for base, count in counts.items() if 2 * count > len(cells)}


def _most(study: Study, cells: list[Cell]) -> Finding:
    """The largest gain over a stock TCP, beside it the fastest one there; and the largest over every other base, LTP that delivers everything among them."""
    own = phases.lossy(study)
    stock = dict.fromkeys(base for _, _, cell in cells for base in phases.tcp(cell))
    others = dict.fromkeys(
        base
        for _, _, cell in cells
        for base in (*phases.other_tcp(cell), *phases.partial_tcp(cell), phases.whole(study))
    )
    gains = {base: found for base in (*stock, *others) if (found := _gains(cells, base, own))}
    if not stock or not gains:
        return not_measured(CLAIM, SOURCES[CLAIM], "no path with losses was run")
    most = {base: max(found, key=lambda one: geometric_mean(one[0])) for base, found in gains.items()}
    over = max((base for base in most if base in stock), key=lambda base: geometric_mean(most[base][0]))
    ratios, where, cell = most[over]
    best = phases.best(cell, phases.tcp(cell))
    beside = phases.speed_ups(cell, best, own)
    gain, times = geometric_mean(ratios), sum(geometric_mean(one) >= TIMES for one, _, _ in gains[over])
    return Finding(
        CLAIM, SOURCES[CLAIM],
        f"speed-up of an iteration: {observed.with_interval(ratios)}× over {over}"
        + ("" if best == over else f" and {observed.with_interval(beside)}× over {best}") + ", the best there,"
        + f" with {phases.delivered_by(cell, own):.1%} delivered ({where}); at least {TIMES:g}× over {over} on {times} of {len(gains[over])} paths that lose; "
        + "the largest over each of the others: " + "; ".join(_format_gain(base, most[base], own) for base in most if base != over),
        gain, f"× as fast as {over}, " + ("" if best == over else f"{geometric_mean(beside):.2f}× as fast as {best}, ") + f"the best there; {where}",
        log_interval(ratios), len(ratios),
        graded(gain >= TIMES, gain >= SOME, alike=1 - ALIKE <= gain <= 1 + ALIKE),
        f"reproduced if the largest speed-up over a stock TCP is at least {TIMES:g}, partly if at least {SOME:g}; judged: that one, of the cells in which no TCP is "
        "missing that the others have",
        study.paths,
    )  # fmt: skip


def _gains(cells: list[Cell], base: str, own: str) -> list[Gain]:
    return [(ratios, at, cell) for at, _, cell in cells if (ratios := phases.speed_ups(cell, base, own))]


def _format_gain(base: str, gain: Gain, own: str) -> str:
    ratios, at, cell = gain
    less = phases.delivered_by(cell, base)
    partial = "" if less == 1 else f", which delivers {less:.1%},"
    return f"{observed.with_interval(ratios)}× over {base}{partial} with {phases.delivered_by(cell, own):.1%} delivered ({at})"


def _best(study: Study, claim: str, cells: list[Cell]) -> Finding:
    """Over the fastest stock TCP of each cell; beside it LTP that delivers everything."""
    gains = {at: (phases.best(cell, phases.tcp(cell)), cell) for at, _, cell in cells}
    if not gains:
        return not_measured(claim, SOURCES[claim], "no such path with losses was run")
    ratios = {at: phases.speed_ups(cell, base, phases.lossy(study)) for at, (base, cell) in gains.items()}
    said = [_beside(study, base, at, cell) for at, (base, cell) in gains.items()]
    sure = [ratio_ends(ratio)[0] > 1 + ALIKE for ratio in ratios.values()]
    most = max(ratios, key=lambda at: geometric_mean(ratios[at]))
    return Finding(
        claim, SOURCES[claim], "; ".join(said),
        geometric_mean(ratios[most]), f"× as fast as {gains[most][0]}, {most}", log_interval(ratios[most]), len(ratios[most]),
        graded(all(sure), any(sure)),
        f"reproduced if the speed-up over the fastest stock TCP is surely above {1 + ALIKE:g} in every such cell that loses, partly if in some; judged: the "
        "cell that gains most, of those in which no TCP is missing that the others have",
        study.paths,
    )  # fmt: skip


def _beside(study: Study, base: str, at: str, cell: pd.DataFrame) -> str:
    """LTP over ``base``, and LTP that delivers everything."""
    own = phases.lossy(study)
    whole = phases.speed_ups(cell, base, phases.whole(study))
    return (
        f"{observed.with_interval(phases.speed_ups(cell, base, own))}× over {base} with {phases.delivered_by(cell, own):.1%} delivered"
        + (f", {observed.with_interval(whole)}× with all of it" if whole else "")
        + f" ({at})"
    )


def _none(study: Study, cells: list[Cell]) -> Finding:
    """The control of the figure itself: without losses, over the fastest stock TCP."""
    gains = {at: (phases.best(cell, phases.tcp(cell)), cell) for at, _, cell in cells}
    if not gains:
        return not_measured(NONE, SOURCES[NONE], "no path without losses was run")
    ratios = {at: phases.speed_ups(cell, base, phases.lossy(study)) for at, (base, cell) in gains.items()}
    fine = [geometric_mean(ratio) >= 1 - WITHIN for ratio in ratios.values()]
    least = min(ratios, key=lambda at: geometric_mean(ratios[at]))
    return Finding(
        NONE, SOURCES[NONE],
        "speed-up of an iteration: " + "; ".join(_beside(study, base, at, cell) for at, (base, cell) in gains.items()),
        geometric_mean(ratios[least]), f"× as fast as {gains[least][0]}, {least}", log_interval(ratios[least]), len(ratios[least]),
        graded(all(fine), any(fine)),
        f"reproduced if LTP takes at most {WITHIN:.0%} longer than the fastest stock TCP in every cell without losses, partly if in some; judged: the worst",
        study.paths,
    )  # fmt: skip

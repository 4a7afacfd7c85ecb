"""LTP over paths that lose packets at random: loss × round-trip time, against every TCP, and against itself without loss."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pandas as pd

from analysis import drawing, phases
from analysis import observations as observed
from analysis.finding import ALIKE, Finding, graded, not_measured
from analysis.study import Study
from core.runs.load import LoadError
from theory.statistics import geometric_mean, log_interval, ratio_ends

ID = "ltp-loss"
PAPER = "LTP"
TITLE = "LTP over paths that lose: how many times TCP's speed"
TEXT = (
    "Bars: a mean iteration, from computing over the gather to the broadcast; ticks are seeds. Beside them the speed-up over the first system, and "
    "what of the gradients was delivered where that is less than all. Random loss on a long path starves a TCP that takes it for congestion; one that "
    "does not (BBR), or LTP that delivers everything, says how much of the gain is the rate and how much the tolerance."
)
CLAIM = "LTP is up to 30 times as fast as traditional TCP congestion controls."
BEST = "LTP is faster than the best of them where packets are lost at random."
SHORT = "Where a round trip takes less than a millisecond LTP is faster than the best of them, too."
NONE = "Where nothing is lost LTP is no slower than TCP."
SOURCES = {CLAIM: "LTP, abstract [published]", BEST: "ours", SHORT: "ours", NONE: "ours"}
CONTROLS = {
    CLAIM: "iterations that take 1.4 times the ideal under every transport",
    BEST: "iterations that take 1.4 times the ideal under every transport",
    SHORT: "iterations that take 1.4 times the ideal under every transport",
    NONE: "an LTP that takes 1.4 times the ideal beside a base of 1.1 times",
}
TIMES, SOME, WITHIN, SHORT_MS = 30.0, 3.0, 0.1, 1.0
CELL = ["rate_bps", "rtt_ms"]
Cell = tuple[str, float, pd.DataFrame]  # which, its loss, its rows


def draw(study: Study, out: Path) -> list[Path]:
    """Write ``ltp-loss.{png,pdf,csv}``; the data: a row per run."""
    rows = phases.table(study)
    drawn = phases.figure(
        study, rows, CELL, "loss",
        lambda one: f"{drawing.rate(one['rate_bps'])}, round trip {one['rtt_ms']:g} ms, loss {100 * one['loss']:g} %",
    )  # fmt: skip
    return drawing.save(drawn, rows, out, ID)


def find(study: Study) -> list[Finding]:
    """The paper's sentence, the best baseline, the same over short paths, and the control without loss; accuracy is judged in `ltp-accuracy`."""
    try:
        rows = phases.table(study)
    except LoadError as error:
        return [not_measured(claim, SOURCES[claim], str(error)) for claim in SOURCES]
    found: list[Cell] = []
    for _, cell in rows.groupby([*CELL, "loss"]):
        loss = float(cell["loss"].iloc[0])
        if phases.tcp(cell) and phases.lossy(study) in set(cell["system"]):
            at = f"{drawing.rate(cell['rate_bps'].iloc[0])}, {cell['rtt_ms'].iloc[0]:g} ms, {100 * loss:g} % loss"
            found.append((at, loss, cell))
    lossy = [one for one in found if one[1] > 0]
    usual = _usual(found)
    fair = [one for one in found if usual <= set(phases.tcp(one[2]))]
    best = [one for one in fair if one[1] > 0]
    return [
        _most(study, lossy),
        _best(study, BEST, best),
        _best(study, SHORT, [one for one in best if one[2]["rtt_ms"].iloc[0] < SHORT_MS]),
        _none(study, [one for one in fair if one[1] == 0]),
    ]


def _usual(cells: list[Cell]) -> set[str]:
    """The stock TCPs of most cells: where the runs of one of them are missing, or invalid, the fastest is not known."""
    counts = Counter(base for _, _, cell in cells for base in phases.tcp(cell))
    return {base for base, count in counts.items() if 2 * count > len(cells)}


def _most(study: Study, cells: list[Cell]) -> Finding:
    """The largest gain over any stock TCP, and over each of them."""
    gains = {
        (at, base): ratios
        for at, _, cell in cells
        for base in phases.tcp(cell)
        if (ratios := phases.speed_ups(cell, base, phases.lossy(study)))
    }
    if not gains:
        return not_measured(CLAIM, SOURCES[CLAIM], "no path with losses was run")
    (where, over), most = max(gains.items(), key=lambda one: geometric_mean(one[1]))
    gain = geometric_mean(most)
    return Finding(
        CLAIM, SOURCES[CLAIM],
        "speed-up of an iteration: " + "; ".join(f"{observed.with_interval(ratios)}× over {base} ({at})" for (at, base), ratios in gains.items()),
        gain, f"× as fast as {over}, {where}", log_interval(most), len(most),
        graded(gain >= TIMES, gain >= SOME, alike=1 - ALIKE <= gain <= 1 + ALIKE),
        f"reproduced if the largest speed-up over a stock TCP is at least {TIMES:g}, partly if at least {SOME:g}; judged: that one",
        study.paths,
    )  # fmt: skip


def _best(study: Study, claim: str, cells: list[Cell]) -> Finding:
    """Over the fastest stock TCP of each cell; beside it LTP that delivers everything."""
    gains = {at: (phases.best(cell, phases.tcp(cell)), cell) for at, _, cell in cells}
    if not gains:
        return not_measured(claim, SOURCES[claim], "no such path with losses was run")
    ratios = {at: phases.speed_ups(cell, base, phases.lossy(study)) for at, (base, cell) in gains.items()}
    said = []
    for at, (base, cell) in gains.items():
        share = float(cell[cell["system"] == phases.lossy(study)]["delivered"].mean())
        whole = phases.speed_ups(cell, base, phases.whole(study))
        said.append(
            f"{observed.with_interval(ratios[at])}× over {base} with {share:.1%} delivered"
            + (f", {observed.with_interval(whole)}× with all of it" if whole else "")
            + f" ({at})"
        )
    sure = [ratio_ends(one)[0] > 1 + ALIKE for one in ratios.values()]
    most = max(ratios, key=lambda at: geometric_mean(ratios[at]))
    return Finding(
        claim, SOURCES[claim], "; ".join(said),
        geometric_mean(ratios[most]), f"× as fast as {gains[most][0]}, {most}", log_interval(ratios[most]), len(ratios[most]),
        graded(all(sure), any(sure)),
        f"reproduced if the speed-up over the fastest stock TCP is surely above {1 + ALIKE:g} in every such cell that loses, partly if in some; judged: the "
        "cell that gains most, of those in which no TCP is missing that the others have",
        study.paths,
    )  # fmt: skip


def _none(study: Study, cells: list[Cell]) -> Finding:
    """The control of the figure itself: without losses, over the fastest stock TCP."""
    gains = {
        at: (base := phases.best(cell, phases.tcp(cell)), phases.speed_ups(cell, base, phases.lossy(study)))
        for at, _, cell in cells
    }
    if not gains:
        return not_measured(NONE, SOURCES[NONE], "no path without losses was run")
    fine = [geometric_mean(ratios) >= 1 - WITHIN for _, ratios in gains.values()]
    least = min(gains, key=lambda at: geometric_mean(gains[at][1]))
    base, ratios = gains[least]
    return Finding(
        NONE, SOURCES[NONE],
        "speed-up of an iteration: " + "; ".join(f"{observed.with_interval(found)}× over {over} ({at})" for at, (over, found) in gains.items()),
        geometric_mean(ratios), f"× as fast as {base}, {least}", log_interval(ratios), len(ratios),
        graded(all(fine), any(fine)),
        f"reproduced if LTP takes at most {WITHIN:.0%} longer than the fastest stock TCP in every cell without losses, partly if in some; judged: the worst",
        study.paths,
    )  # fmt: skip

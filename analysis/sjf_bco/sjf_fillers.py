"""Other values for what the SJF-BCO paper leaves open: whether its rank among the paper's schedulers changes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from testbed.core.runs.load import Schedules
from testbed.core.runs.schedules import Setting
from testbed.models.statistics import estimate_ratio, geometric_mean, ratio_ends
from testbed.report import drawing, schedules, style
from testbed.report.schedules import MINE
from testbed.report.study import Study

ID = "sjf-fillers"
POSITION = 420
TITLE = "With as much communication as published, no choice for the paper's open parameters puts SJF-BCO clearly ahead"
TEXT = (
    "SJF-BCO's makespan and mean completion relative to the best of list scheduling, first fit and random placement (left of 1: ahead), a row for each "
    "choice that the paper leaves open, all others at their defaults. Dots: seeds; diamonds: means with 95 % intervals; band: the default. Last rows: "
    "bisection of θ, overtaking, Poisson arrivals."
)
RIVALS = ("list_scheduling", "first_fit", "random")
WHAT = {"makespan_s": "makespan", "mean_completion_s": "mean completion"}
KEPT = ("setting", "seed", "scheduler", "trials", *WHAT)


def draw(study: Study, out: Path) -> list[Path]:
    """Write ``sjf-fillers.{png,pdf,csv}``; the data: a row for each schedule."""
    computed = schedules.require_schedules(study)
    usual = _usual(computed)
    names = list(dict.fromkeys(_label(row, base) for base in usual for row in _rows(computed, base)))
    filled = sum(_is_filled(other) for other in _others(computed, usual[0]))
    figure, axes = style.new_figure(
        1, len(usual), figsize=(4.4 * len(usual) + 2.4, 0.31 * len(names) + 1.4), sharex=True, sharey=True
    )
    for axis, base in zip(axes[0], usual, strict=True):
        for setting in _rows(computed, base):
            y = names.index(_label(setting, base))
            for what, shift in zip(WHAT, (-0.16, 0.16), strict=True):
                _, ratios = _against_best(computed.table, setting, what)
                _mark(axis, y + shift, ratios, what, label=WHAT[what] if setting == base else None)
        axis.axvspan(*ratio_ends(_against_best(computed.table, base)[1]), color=drawing.MLTCP, alpha=0.1, linewidth=0)
        axis.axvline(1, color=style.REFERENCE, linewidth=1)
        for y in (0, filled):
            axis.axhline(y + 0.5, color=style.REFERENCE, linewidth=0.6)
        axis.set_yticks(range(len(names)), names)
        axis.set_ylim(len(names) - 0.5, -0.5)
        axis.set_title(schedules.heading(base))
        axis.set_xlabel("SJF-BCO ÷ the best of LS, FF and RAND (below 1: ahead)")
    axes[0][0].legend(loc="best", fontsize=8)
    schedules.caption(figure, computed, " where no row says otherwise")
    return drawing.save(figure, computed.table[list(KEPT)], out, ID)


def _mark(axis: Any, y: float, ratios: Sequence[float], what: str, *, label: str | None) -> None:
    """A dot for each seed, their mean and its 95 % interval."""
    colour = drawing.colour(treatment=what == "makespan_s")
    axis.plot(ratios, [y] * len(ratios), "o", markersize=2.5, markeredgewidth=0, color=colour, alpha=0.3)
    mean = estimate_ratio(ratios)
    axis.plot(mean.value, y, "D", markersize=4.5, color=colour, label=label)
    if mean.interval:
        axis.hlines(y, *mean.interval, color=colour, linewidth=1.5)


def _against_best(table: pd.DataFrame, setting: Setting, what: str = "makespan_s") -> tuple[str, list[float]]:
    """Which of the paper's other schedulers is the best one in a setting, and SJF-BCO ÷ it, by seed."""
    own = schedules.values(table, setting.name, MINE, what=what)
    against = {
        name: list(schedules.ratio(own, schedules.values(table, setting.name, name, what=what))) for name in RIVALS
    }
    best = max(RIVALS, key=lambda name: geometric_mean(against[name]))
    return best, against[best]


def _usual(computed: Schedules) -> list[Setting]:
    """The settings in which everything is filled in as by default."""
    return [
        setting
        for setting in schedules.settings(computed)
        if setting == Setting(name=setting.name, ratio=setting.ratio, most=setting.most)
    ]


def _others(computed: Schedules, base: Setting) -> list[Setting]:
    """Those with as much communication as ``base``, and another value of an open parameter."""
    return [
        setting
        for setting in schedules.settings(computed)
        if setting != base and (setting.ratio, setting.most) == (base.ratio, base.most)
    ]


def _rows(computed: Schedules, base: Setting) -> list[Setting]:
    return [base, *_others(computed, base)]


def _label(setting: Setting, base: Setting) -> str:
    """The changed value: a setting's name without that of its base."""
    return setting.name.removeprefix(base.name).removeprefix(", ") or "by default"


def _is_filled(setting: Setting) -> bool:
    """Whether it is about what the paper leaves open, not about what is read otherwise or is ours."""
    return setting.load is None and not any(one in setting.options for one in ("theta=", "backfill="))

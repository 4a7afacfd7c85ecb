"""SJF-BCO's Fig. 4: when the last job ends, by job scheduler."""

from __future__ import annotations

from math import nan
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from testbed.models.statistics import estimate_ratio
from testbed.report import drawing, schedules, style
from testbed.report.schedules import MINE
from testbed.report.study import Study

ID = "sjf-makespan"
POSITION = 380
TITLE = "SJF-BCO: when the last of 160 jobs ends"
TEXT = (
    "Above, the makespan of each job scheduler, a column for each setting (logarithmic); below, completion: the mean, and as thin lines "
    "from the first job's to the last one's. Dots are seeds, diamonds the report's values, which are of the published setting. In the control uplinks "
    "have no limit: what a scheduler gains there comes from order and search. LS, FF and RAND take jobs in an order drawn for each seed; "
    "“as many orders” is the best of as many schedules as SJF-BCO evaluated."
)
PUBLISHED = {
    "makespan_s": {MINE: 535, "list_scheduling": 595, "first_fit": 719, "random": 1128},
    "mean_completion_s": {MINE: 178, "list_scheduling": 187, "first_fit": 452, "random": 261},
}
WHAT = {"makespan_s": "makespan", "mean_completion_s": "mean completion"}


def draw(study: Study, out: Path) -> list[Path]:
    """Write ``sjf-makespan.{png,pdf,csv}``; the data: a row for each schedule."""
    computed = schedules.require_schedules(study)
    names = list(dict.fromkeys(computed.table["scheduler"]))
    figure, columns = schedules.panels(computed, 2, 1.2 + 0.24 * len(names), sharey=True)
    for setting, axes in columns.items():
        for axis, what in zip(axes, WHAT, strict=True):
            for y, name in enumerate(names):
                _line(axis, y, computed.table, setting, name, what)
                if setting == schedules.published_in(computed) and name in PUBLISHED[what]:
                    axis.plot(PUBLISHED[what][name], y, "D", color=style.REFERENCE, markersize=4)
            axis.set_yticks(range(len(names)), [schedules.short(name) for name in names])
            axis.set_ylim(len(names) - 0.5, -0.5)
            axis.set_xlabel(f"{WHAT[what]} (s)")
            drawing.plain_log(axis.xaxis)
    schedules.caption(figure, computed)
    marks: list[float] = [PUBLISHED["makespan_s"].get(name, nan) for name in computed.table["scheduler"]]
    return drawing.save(figure, computed.table.assign(published_makespan=marks), out, ID)


def _line(axis: Any, y: int, table: pd.DataFrame, setting: str, name: str, what: str) -> None:
    """A dot for each seed, their mean and its 95 % interval; of completions, how far the first and the last job are from it."""
    found = list(schedules.values(table, setting, name, what=what))
    if not found:
        return
    colour = drawing.colour(treatment=name == MINE)
    if what == "mean_completion_s":
        ends = (
            schedules.values(table, setting, name, what=end).mean() for end in ("min_completion_s", "max_completion_s")
        )
        axis.hlines(y, *ends, color=style.REFERENCE, linewidth=0.6, alpha=0.5)
    axis.plot(
        found, y + np.linspace(-0.2, 0.2, len(found)), "o", markersize=3, markeredgewidth=0, color=colour, alpha=0.45
    )
    mean = estimate_ratio(found)
    axis.vlines(mean.value, y - 0.35, y + 0.35, color=colour, linewidth=2.2)
    if mean.interval:
        axis.hlines(y, *mean.interval, color=colour, linewidth=1.3)

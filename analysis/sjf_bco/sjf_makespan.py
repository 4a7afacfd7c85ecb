"""SJF-BCO's Fig. 4: when the last job ends, by job scheduler."""

from __future__ import annotations

from math import nan
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from testbed.core.runs.load import LoadError, Schedules
from testbed.core.runs.schedules import Setting
from testbed.models.statistics import estimate_ratio, geometric_mean, log_interval, ratio_ends
from testbed.report import drawing, schedules, style
from testbed.report.finding import Finding, graded, no_difference
from testbed.report.schedules import MINE, REPORT
from testbed.report.study import Study

ID = "sjf-makespan"
POSITION = 380
PAPER = schedules.PAPER
TITLE = "SJF-BCO: when the last of 160 jobs ends"
TEXT = (
    "Above, the makespan of each job scheduler, a column for each setting (logarithmic); below, completion: the mean, and as thin lines "
    "from the first job's to the last one's. Dots are seeds, diamonds the report's values, which are of the published setting. In the control uplinks "
    "have no limit: what a scheduler gains there comes from order and search. LS, FF and RAND take jobs in an order drawn for each seed; "
    "“as many orders” is the best of as many schedules as SJF-BCO evaluated."
)
EARLIER = "SJF-BCO has the last job end before list scheduling, first fit and random placement do."
COMPLETION = "Its jobs take the least time from arrival to end, in the mean."
BUDGET = "It ends before tightest fit in the best of as many job orders as it evaluated schedules."
SOURCES = {
    EARLIER: f"Fig. 4 [published]; {REPORT}",
    COMPLETION: f"Fig. 4 [published]; {REPORT}",
    BUDGET: "ours: the report gives its rivals no search over orders",
}
CONTROLS = dict.fromkeys(SOURCES, "uplinks without limit (b_e → ∞), where order and search alone remain")
RIVALS = ("list_scheduling", "first_fit", "random")
SEARCHED = "best_of:n={trials}"
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


def find(study: Study) -> list[Finding]:
    """For each setting: the makespan, mean completion, and what a search over orders alone gives."""
    cases = {
        EARLIER: (RIVALS, "makespan_s"),
        COMPLETION: (RIVALS, "mean_completion_s"),
        BUDGET: ((SEARCHED,), "makespan_s"),
    }
    judges = {
        claim: lambda setting, claim=claim, rivals=rivals, what=what: _less(
            schedules.require_schedules(study), claim, setting, rivals, what
        )
        for claim, (rivals, what) in cases.items()
    }
    return schedules.findings(study, SOURCES, judges)


def _less(computed: Schedules, claim: str, setting: Setting, rivals: tuple[str, ...], what: str) -> Finding:
    """SJF-BCO ÷ each rival, beside the same where nothing contends."""
    control = schedules.control(computed)
    if control is None:
        raise LoadError("there is no setting without a limit on uplinks to compare with")

    def against(rival: str, where: str) -> pd.Series[float]:
        own, other = (schedules.values(computed.table, where, name, what=what) for name in (MINE, rival))
        return schedules.ratio(own, other)

    ratios = {rival: list(against(rival, setting.name)) for rival in rivals}
    rest = {rival: against(rival, control) for rival in rivals}
    beyond = {rival: list(schedules.ratio(against(rival, setting.name), rest[rival])) for rival in rivals}
    clear = [schedules.below_one(ratios[rival]) and schedules.below_one(beyond[rival]) for rival in rivals]
    nearest = max(rivals, key=lambda rival: geometric_mean(ratios[rival]))
    said = [
        f"{schedules.text(ratios[rival])} of that of {schedules.short(rival)}"
        + (f", published {PUBLISHED[what][MINE] / PUBLISHED[what][rival]:.2f}" if rival in PUBLISHED[what] else "")
        + f", without contention {geometric_mean(rest[rival]):.2f}"
        for rival in rivals
    ]
    return Finding(
        f"{claim} {schedules.describe_setting(setting)}", SOURCES[claim], f"its {WHAT[what]} is " + "; ".join(said),
        geometric_mean(ratios[nearest]), f"of the {WHAT[what]} of {schedules.short(nearest)}",
        log_interval(ratios[nearest]), len(ratios[nearest]),
        graded(all(clear), any(clear), alike=all(no_difference(ratio_ends(found)) for found in beyond.values())),
        f"reproduced if its {WHAT[what]} ÷ the rival's is surely below 1 (95 % interval over seeds, compared seed by seed) and surely below what it is "
        "without contention, against each rival; partly if against some; no difference if it is what it is without contention, to 2 %",
        (),
    )  # fmt: skip

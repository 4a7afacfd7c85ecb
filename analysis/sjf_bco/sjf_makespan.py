"""SJF-BCO's Fig. 4: when the last job ends, by job scheduler."""

from __future__ import annotations

import textwrap
from math import nan
from pathlib import Path
from typing import Any

import pandas as pd

from testbed.models.statistics import geometric_mean
from testbed.report import drawing, redrawing, schedules, style
from testbed.report.figures import Tables
from testbed.report.schedules import MINE
from testbed.report.study import Study

ID = "sjf-makespan"
POSITION = 380
TITLE = "SJF-BCO's makespan beats LS, FF and RAND where links are contended; simpler schedulers beat SJF-BCO's"
TEXT = (
    "Each job scheduler relative to SJF-BCO (right of the line: longer), paired by job list, means with 95 % intervals; arrows are values beyond the edge. Above makespan, below mean completion. "
    "Crosses: published values. Columns: communication ÷ computing; in the control uplinks have no limit. LS, FF and RAND draw the order of jobs."
)
PUBLISHED = {
    "makespan_s": {MINE: 535, "list_scheduling": 595, "first_fit": 719, "random": 1128},
    "mean_completion_s": {MINE: 178, "list_scheduling": 187, "first_fit": 452, "random": 261},
}
WHAT = {"makespan_s": "makespan", "mean_completion_s": "mean completion"}
EDGES = (0.55, 2.1)  # of what is shown
TICKS = (0.6, 0.8, 1, 1.4, 2)


def draw(study: Study, out: Path) -> list[Path]:
    """Write ``sjf-makespan.{png,pdf,csv}``; the data: a row for each schedule."""
    computed = schedules.require_schedules(study)
    headings = {one.name: schedules.heading(one).replace("\n", " ") for one in computed.made.asked.setting}
    marks: list[float] = [PUBLISHED["makespan_s"].get(name, nan) for name in computed.table["scheduler"]]
    settings = computed.table["setting"].astype(str)
    table = computed.table.assign(
        published_makespan=marks, heading=settings.map(headings), as_in_report=settings == schedules.published_in(computed)
    )  # fmt: skip
    note = f"160 jobs in the published mix, servers of 4 to 32 GPUs; {drawing.count(table['seed'].nunique(), 'job list')} (dots); equation 8, α = {computed.made.asked.alpha:g}; computed."
    return redrawing.publish(plot, {ID: table}, note, out)


def plot(tables: Tables) -> Any:
    """A row for each metric, a column for each setting, the control last; a line for each job scheduler."""
    table = tables[ID]
    table = table[table["servers"] == schedules.USUAL_SERVERS]
    headings = sorted(dict.fromkeys(table["heading"]), key=lambda heading: heading.startswith("control"))
    names = [name for name in dict.fromkeys(table["scheduler"]) if name != MINE]
    figure, axes = style.new_figure(
        len(WHAT), len(headings), figsize=(2.2 + 1.8 * len(headings), 1 + 0.48 * len(names)), sharey=True, sharex=True
    )
    for line, (what, label) in zip(axes, WHAT.items(), strict=True):
        for axis, heading in zip(line, headings, strict=True):
            here = table[table["heading"] == heading]
            base = here[here["scheduler"] == MINE].set_index("seed")[what]
            for y, name in enumerate(names):
                ratios = (here[here["scheduler"] == name].set_index("seed")[what] / base).dropna()
                _line(axis, y, ratios)
                if here["as_in_report"].any() and name in PUBLISHED[what]:
                    shown = min(PUBLISHED[what][name] / PUBLISHED[what][MINE], EDGES[1])
                    axis.plot(shown, y, "x", color="black", markersize=6, markeredgewidth=1.6, zorder=6)
            axis.axvline(1, color="black", linewidth=0.8)
            axis.set_xlabel(f"{label}\n÷ SJF-BCO's")
            axis.grid(visible=False, axis="y")
    drawing.plain_log(axes[0, 0].xaxis)
    axes[0, 0].set_xlim(*EDGES)
    axes[0, 0].set_xticks(TICKS, [f"{tick:g}" for tick in TICKS])
    axes[0, 0].set_yticks(range(len(names)), [schedules.short(name) for name in names], fontsize=8.5)
    axes[0, 0].set_ylim(len(names) - 0.5, -0.5)
    for axis, heading in zip(axes[0], headings, strict=True):
        axis.set_title(textwrap.fill(heading, 18), fontsize=9)
    return figure


def _line(axis: Any, y: int, ratios: pd.Series[float]) -> None:
    """Seeds, their mean and its interval; of a mean beyond the edge its number."""
    if ratios.empty:
        return
    mean = geometric_mean(ratios)
    if mean <= EDGES[1]:
        drawing.across(axis, y, list(ratios), style.JOBS[1 if mean > 1 else 0])
    else:
        axis.text(EDGES[1] * 0.98, y, f"{mean:.2g} ▸", ha="right", va="center", fontsize=8, color=style.JOBS[1])

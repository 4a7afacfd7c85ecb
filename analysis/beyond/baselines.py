"""The references of MLTCP: static unfairness, strict priority, CASSINI's plan, each job in isolation."""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from testbed.core import system_text
from testbed.core.runs import measured
from testbed.core.runs.load import LoadError, Run
from testbed.models.statistics import geometric_mean, log_interval
from testbed.report import drawing, redrawing, style
from testbed.report import observations as observed
from testbed.report.figures import Tables
from testbed.report.study import Study
from testbed.schedulers import flow

ID = "baselines"
POSITION = 180
TITLE = "MLTCP comes as close to the ideal as priority and CASSINI, which must know the jobs beforehand"
TEXT = (
    "Two jobs that fit together, equal ones and unequal ones, a column for each system (in brackets: what it must know), a row for each level of compute "
    "noise. Iteration time relative to the ideal: mean over all iterations, mean and 99th percentile of the steady state; dashed: a job in isolation. A "
    "dot a seed."
)
ORDER = ("baseline", "reference", "treatment")
METRICS = (
    ("mean", "mean of all iterations"),
    ("settled", "mean, steady state"),
    ("settled_p99", "99th percentile, steady state"),
)


def draw(study: Study, out: Path) -> list[Path]:
    """Write ``baselines.{png,pdf,csv}``; the data: a row per run."""
    table = _table(study)
    note = (
        f"{drawing.setting(study.runs[0])}; {drawing.count(table['jobs'].iloc[0], 'job')}, duty {observed.duty(study.runs[0], 0):.0%} each; "
        f"{drawing.count(table['seed'].nunique(), 'seed')} (dots), means, 95 % intervals."
    )
    return redrawing.publish(plot, {ID: table}, note, out)


def plot(tables: Tables) -> Any:
    """A row of panels for each kind of jobs and noise."""
    table = tables[ID]
    kinds = sorted(
        set(zip(table["unlike"], table["noise"], strict=True)), key=lambda kind: (kind[0], float(kind[1].rstrip("%")))
    )
    figure, axes = style.new_figure(
        len(kinds), len(METRICS), figsize=(4.4 * len(METRICS), 0.8 + 2.9 * len(kinds)), sharey="row", sharex=True
    )
    for row, (unlike, noise) in enumerate(kinds):
        for axis, (column, title) in zip(axes[row], METRICS, strict=True):
            _panel(axis, table[(table["noise"] == noise) & (table["unlike"] == unlike)], column)
            if row == 0:
                axis.set_title(title)
        low, high = axes[row, 0].get_ylim()
        axes[row, 0].set_ylim(low, high + 0.07 * (high - low))  # room for the numbers
        axes[row, 0].set_ylabel(f"{_kind(unlike)}, noise {noise}\niteration time ÷ ideal")
    return figure


def _table(study: Study) -> pd.DataFrame:
    table = observed.table(study)
    if table.empty or table["cc"].nunique() < 2:
        raise LoadError("baselines: there is nothing to compare; run experiments/baselines.toml")
    alone = []
    for experiment in study.experiments:
        for run in experiment.runs:
            lone = measured.isolated_s(experiment, run)
            alone.append(float(lone.mean()) / measured.ideal_s(run) if lone is not None else np.nan)
    central = table["cc"].map({run.plan.system.label: run.plan.system.central for run in study.runs})
    table = table.assign(alone=alone, unlike=[_unlike(run) for run in study.runs], central=central)
    parts = [_over_schedule(rows) for _, rows in table.groupby(["unlike", "noise"])]
    return table.assign(of_schedule=pd.concat(parts))


def _over_schedule(rows: pd.DataFrame) -> pd.Series[float]:
    """The steady state ÷ that of the same seed under the best schedule made from what is known of all jobs; NaN without one."""
    means = rows[rows["central"]].groupby("cc")["settled"].apply(geometric_mean)
    if means.empty:
        return rows["settled"] * np.nan
    best = rows[rows["cc"] == means.idxmin()].set_index("seed")["settled"]
    return rows["settled"] / rows["seed"].map(best)


def _knows(system: str, role: str) -> str:
    """The input that a flow scheduler needs beforehand; ``nothing`` of any other system."""
    return getattr(flow.find(system_text.name_of(system)), "KNOWS", "") if role == "reference" else "nothing"


def _unlike(run: Run) -> bool:
    """Whether its jobs differ in what they send: only then does the order of priorities matter."""
    return len({max(job.bytes_per_worker, default=0) for job in run.jobs}) > 1


def _kind(unlike: bool) -> str:
    return "different jobs" if unlike else "equal jobs"


def _panel(axis: Any, rows: pd.DataFrame, column: str) -> None:
    roles = observed.roles(rows)
    ccs = sorted(roles, key=lambda cc: ORDER.index(roles[cc]))
    for x, cc in enumerate(ccs):
        scheduler = roles[cc] == "reference"
        colour = style.JOBS[2] if scheduler else drawing.colour(treatment=roles[cc] == "treatment")
        values = rows[rows["cc"] == cc][column]
        drawing.seeds(axis, x, list(values), colour, width=0.5)
        top = max([values.max(), *(log_interval(values) or ())])
        axis.annotate(
            f"{geometric_mean(values):.3f}",
            (x, top),
            xytext=(0, 4),
            textcoords="offset points",
            ha="center",
            fontsize=9,
            color=colour,
        )
    axis.axhline(float(rows["alone"].mean()), color=style.REFERENCE, linewidth=0.8, linestyle="--")
    knowing = [_knows(cc, roles[cc]) for cc in ccs]
    labels = [f"{cc}\n{textwrap.fill(f'({knows})', 12)}" for cc, knows in zip(ccs, knowing, strict=True)]
    axis.set_xticks(range(len(ccs)), labels, fontsize=7.5)
    axis.set_xlim(-0.6, len(ccs) - 0.4)
    axis.grid(visible=False, axis="x")

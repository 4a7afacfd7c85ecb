"""What MLTCP is compared with: static unfairness, strict priority, CASSINI's plan, each job alone."""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from testbed.core.runs import measured
from testbed.core.runs.load import LoadError, Run
from testbed.core.runs.plan import System
from testbed.models.statistics import geometric_mean, log_interval, ratio_ends
from testbed.report import drawing, style
from testbed.report import observations as observed
from testbed.report.finding import Finding, graded, no_difference, not_measured, not_measured_without
from testbed.report.study import Study

ID = "baselines"
POSITION = 180
TITLE = "MLTCP beside its neighbours: static unfairness, priority, CASSINI"
TEXT = (
    "Two jobs that fit together, equal ones and one that sends twice as much as the other, one column per system (in brackets: "
    "what it must know beforehand), one row per level of compute noise; iteration time ÷ ideal. Left the mean over all iterations, the learning ones included, then the mean of the "
    "settled half, then its 99th percentile; dashed, a job alone. One dot a seed; the number is the mean."
)
CLAIM = (
    "MLTCP approximates a centralised schedule (priority by remaining bytes) without central control or switch support."
)
SOURCE = "paper, abstract and HotNets 2024, abstract [published]; no number"
NEAR = 0.05
ORDER = ("baseline", "reference", "treatment")
CONTROLS = {CLAIM: "equal jobs, of which no order is told apart, and a base that is as fast"}
METRICS = (
    ("mean", "mean of all iterations"),
    ("settled", "mean, settled half"),
    ("settled_p99", "99th percentile, settled half"),
)


def draw(study: Study, out: Path) -> list[Path]:
    """Write ``baselines.{png,pdf,csv}``; the data: a row per run."""
    table, systems = _table(study), _systems(study)
    kinds = sorted(
        set(zip(table["unlike"], table["noise"], strict=True)), key=lambda kind: (kind[0], float(kind[1].rstrip("%")))
    )
    figure, axes = style.new_figure(
        len(kinds), len(METRICS), figsize=(4.4 * len(METRICS), 0.8 + 2.9 * len(kinds)), sharey="row", sharex=True
    )
    for row, (unlike, noise) in enumerate(kinds):
        for axis, (column, title) in zip(axes[row], METRICS, strict=True):
            _panel(axis, table[(table["noise"] == noise) & (table["unlike"] == unlike)], column, systems)
            if row == 0:
                axis.set_title(title)
        low, high = axes[row, 0].get_ylim()
        axes[row, 0].set_ylim(low, high + 0.07 * (high - low))  # room for the numbers
        axes[row, 0].set_ylabel(f"{_kind(unlike)}, noise {noise}\niteration time ÷ ideal")
    drawing.caption(
        figure,
        f"{drawing.setting(study.runs[0])}; {drawing.count(table['jobs'].iloc[0], 'job')}, duty {observed.duty(study.runs[0], 0):.0%} each; "
        f"{drawing.count(table['seed'].nunique(), 'seed')} (dots), means, 95 % intervals.",
    )
    return drawing.save(figure, table, out, ID)


@not_measured_without({CLAIM: SOURCE})
def find(study: Study) -> list[Finding]:
    """One finding a level of noise: MLTCP's settled half against the best of the others, on jobs of unlike sizes.

    Equal jobs tell remaining bytes and relative progress apart in no case: any order of theirs is as good.
    """
    table = _table(study)
    unlike = table[table["unlike"]]
    if unlike.empty:
        return [not_measured(CLAIM, SOURCE, "only equal jobs were run, of which any order is as good")]
    return [_against(study, rows, str(noise)) for noise, rows in unlike.groupby("noise", sort=True)]


def _against(study: Study, rows: pd.DataFrame, noise: str) -> Finding:
    claim = f"{CLAIM} Compute noise {noise}."
    roles = observed.roles(rows)
    systems = _systems(study)
    central = [label for label in roles if systems[label].central]
    mltcp = [cc for cc, role in roles.items() if role == "treatment"]
    if not central or not mltcp:
        return not_measured(
            claim, SOURCE, "no schedule made from what is known of all jobs (priority, CASSINI) was run beside MLTCP"
        )
    means = rows.groupby("cc")["settled"].apply(geometric_mean)
    best = min(central, key=lambda cc: float(means[cc]))
    away = [1 / value for value in observed.ratios(rows, best, mltcp[0], "settled")]
    whole = [1 / value for value in observed.ratios(rows, best, mltcp[0], "mean")]
    if not away:
        return not_measured(claim, SOURCE, f"no seed was run under both {best} and {mltcp[0]}")
    base = observed.pair({label: role for label, role in roles.items() if label == systems[label].name})
    gains = observed.ratios(rows, *base, "settled") if base else []
    found = log_interval(away)
    alike = bool(gains) and no_difference(ratio_ends(gains))
    verdict = graded(ratio_ends(away)[1] <= 1 + NEAR, bool(gains) and geometric_mean(gains) > 1, alike=alike)
    return Finding(
        claim, SOURCE,
        f"settled half ÷ that under {best}, the better of {' and '.join(central)}: {observed.with_interval(away, 3)}; "
        + "; ".join(f"{cc} {value:.3f}" for cc, value in means.items())
        + f" × ideal; over all iterations, the learning ones included, {observed.with_interval(whole, 3)} of that under {best}",
        geometric_mean(away), f"× the iteration time under {best}", found, len(away), verdict,
        f"reproduced if at most {NEAR:.0%} slower than the better of the two (the interval's upper end; without one, every seed), "
        "partly if faster than the base in the mean, no difference if the base is as fast",
        study.paths,
    )  # fmt: skip


def _table(study: Study) -> pd.DataFrame:
    table = observed.table(study)
    if table.empty or table["cc"].nunique() < 2:
        raise LoadError("baselines: there is nothing to compare; run experiments/baselines.toml")
    alone = []
    for experiment in study.experiments:
        for run in experiment.runs:
            lone = measured.isolated_s(experiment, run)
            alone.append(float(lone.mean()) / measured.ideal_s(run) if lone is not None else np.nan)
    return table.assign(alone=alone, unlike=[_unlike(run) for run in study.runs])


def _systems(study: Study) -> dict[str, System]:
    """By label."""
    return {run.plan.system.label: run.plan.system for run in study.runs}


def _unlike(run: Run) -> bool:
    """Whether its jobs differ in what they send: only then does it matter by what somebody goes first."""
    return len({max(job.bytes_per_worker, default=0) for job in run.jobs}) > 1


def _kind(unlike: bool) -> str:
    return "unlike jobs" if unlike else "equal jobs"


def _panel(axis: Any, rows: pd.DataFrame, column: str, systems: dict[str, System]) -> None:
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
    knowing = [systems[cc].knows or "nothing" for cc in ccs]
    labels = [f"{cc}\n{textwrap.fill(f'({knows})', 12)}" for cc, knows in zip(ccs, knowing, strict=True)]
    axis.set_xticks(range(len(ccs)), labels, fontsize=7.5)
    axis.set_xlim(-0.6, len(ccs) - 0.4)
    axis.grid(visible=False, axis="x")

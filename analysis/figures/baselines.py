"""What MLTCP is compared with: static unfairness, strict priority, CASSINI's plan, each job alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from analysis import drawing, style
from analysis import observations as observed
from analysis.finding import Finding, graded, not_measured
from analysis.study import Study
from core.runs import measured
from core.runs.load import LoadError
from theory.statistics import ends, interval

ID = "baselines"
TITLE = "MLTCP beside its neighbours: static unfairness, priority, CASSINI"
TEXT = (
    "Two jobs that fit together, one column per system (in brackets: what it must know beforehand), one row per level of "
    "compute noise; iteration time ÷ ideal. Left the mean over all iterations, the learning ones included, then the mean of the "
    "settled half, then its 99th percentile; dashed, a job alone. One dot a seed; the number is the mean."
)
CLAIM = (
    "MLTCP approximates a centralised schedule (priority by remaining bytes) without central control or switch support."
)
SOURCE = "paper, abstract and HotNets 2024, abstract [published]; no number"
NEAR = 0.05
KNOWS = {  # beforehand
    "unfair": "who is\nto win", "priority": "bytes to\nsend; bands\nin switches", "cassini": "all jobs,\ntheir\nplaces",
}  # fmt: skip
ORDER = ("unfair", "priority", "cassini")
CENTRAL = ("priority", "cassini")  # they decide for all jobs, from what they know of them
METRICS = (
    ("mean", "mean of all iterations"),
    ("settled", "mean, settled half"),
    ("settled_p99", "99th percentile, settled half"),
)


def draw(study: Study, out: Path) -> list[Path]:
    """Write ``baselines.{png,pdf,csv}``; the data: a row per run."""
    table = _table(study)
    noises = sorted(table["noise"].unique(), key=lambda text: float(text.rstrip("%")))
    figure, axes = style.new_figure(
        len(noises), len(METRICS), figsize=(4.4 * len(METRICS), 0.8 + 2.9 * len(noises)), sharey="row", sharex=True
    )
    for row, noise in enumerate(noises):
        for axis, (column, title) in zip(axes[row], METRICS, strict=True):
            _panel(axis, table[table["noise"] == noise], column)
            if row == 0:
                axis.set_title(title)
        low, high = axes[row, 0].get_ylim()
        axes[row, 0].set_ylim(low, high + 0.07 * (high - low))  # room for the numbers
        axes[row, 0].set_ylabel(f"noise {noise}\niteration time ÷ ideal")
    drawing.caption(
        figure,
        f"{drawing.setting(study.runs[0])}; {table['jobs'].iloc[0]} jobs, duty {observed.duty(study.runs[0], 0):.0%} each; "
        f"{drawing.count(table['seed'].nunique(), 'seed')} (dots), means, 95 % intervals.",
    )
    return drawing.save(figure, table, out, ID)


def find(study: Study) -> list[Finding]:
    """One finding a level of noise: MLTCP's settled half against the best of the others."""
    try:
        table = _table(study)
    except LoadError as error:
        return [not_measured(CLAIM, SOURCE, str(error))]
    return [_against(study, rows, str(noise)) for noise, rows in table.groupby("noise", sort=True)]


def _against(study: Study, rows: pd.DataFrame, noise: str) -> Finding:
    claim = f"{CLAIM} Compute noise {noise}."
    roles = observed.roles(rows)
    central = [cc for cc, role in roles.items() if role == "reference" and cc.partition(":")[0] in CENTRAL]
    mltcp = [cc for cc, role in roles.items() if role == "treatment"]
    if not central or not mltcp:
        return not_measured(claim, SOURCE, "neither priority nor CASSINI was run beside MLTCP")
    means = rows.groupby("cc")["settled"].mean()
    best = min(central, key=lambda cc: float(means[cc]))
    away = [1 / value for value in observed.ratios(rows, best, mltcp[0], "settled")]
    whole = [1 / value for value in observed.ratios(rows, best, mltcp[0], "mean")]
    if not away:
        return not_measured(claim, SOURCE, f"no seed was run under both {best} and {mltcp[0]}")
    base = observed.pair({cc: role for cc, role in roles.items() if ":" not in cc})
    gains = observed.ratios(rows, *base, "settled") if base else []
    found = interval(away)
    verdict = graded(ends(away)[1] <= 1 + NEAR, bool(gains) and float(np.mean(gains)) > 1)
    return Finding(
        claim, SOURCE,
        f"settled half ÷ that under {best}, the better of {' and '.join(central)}: {observed.with_interval(away, 3)}; "
        + "; ".join(f"{cc} {value:.3f}" for cc, value in means.items())
        + f" × ideal; over all iterations, the learning ones included, {observed.with_interval(whole, 3)} of that under {best}",
        float(np.mean(away)), f"× the iteration time under {best}", found, len(away), verdict,
        f"reproduced if at most {NEAR:.0%} slower than the better of the two (the interval's upper end; without one, every seed), "
        "partly if faster than the base in the mean",
        study.paths,
    )  # fmt: skip


def _table(study: Study) -> pd.DataFrame:
    table = observed.table(study)
    if table.empty or table["cc"].nunique() < 2:
        raise LoadError("baselines: there is nothing to compare; run experiments/baselines.toml")
    alone = []
    for experiment in study.experiments:
        for run in experiment.runs:
            lone = measured.alone_s(experiment, run)
            alone.append(float(lone.mean()) / measured.ideal_s(run) if lone is not None else np.nan)
    return table.assign(alone=alone)


def _panel(axis: Any, rows: pd.DataFrame, column: str) -> None:
    ccs = list(dict.fromkeys(rows["cc"]))
    roles = observed.roles(rows)
    ccs.sort(
        key=lambda cc: (
            roles[cc] == "treatment",
            ORDER.index(cc.partition(":")[0]) if cc.partition(":")[0] in ORDER else -1,
        )
    )
    for x, cc in enumerate(ccs):
        scheduler = roles[cc] == "reference"
        colour = style.JOBS[2] if scheduler else drawing.colour(treatment=roles[cc] == "treatment")
        values = rows[rows["cc"] == cc][column]
        drawing.seeds(axis, x, list(values), colour, width=0.5)
        top = max([values.max(), *(interval(values) or ())])
        axis.annotate(
            f"{values.mean():.3f}",
            (x, top),
            xytext=(0, 4),
            textcoords="offset points",
            ha="center",
            fontsize=9,
            color=colour,
        )
    axis.axhline(float(rows["alone"].mean()), color=style.REFERENCE, linewidth=0.8, linestyle="--")
    labels = [f"{cc}\n({KNOWS.get(cc.partition(':')[0], 'nothing')})" for cc in ccs]
    axis.set_xticks(range(len(ccs)), labels, fontsize=7.5)
    axis.set_xlim(-0.6, len(ccs) - 0.4)
    axis.grid(visible=False, axis="x")

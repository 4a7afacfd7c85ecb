"""A table of iteration times: a row for each job, a column for each system, next to the job's ideal and its time in isolation."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from testbed.core.runs import metrics
from testbed.core.runs.load import Experiment
from testbed.report import drawing, style
from testbed.report.views import panels

_MOST_JOBS = 40  # in the drawing; the CSV has all
_LETTERS_AN_INCH = 11  # of the table


def draw(experiment: Experiment, out: Path) -> list[Path]:
    """Write ``per-job.{png,pdf,csv}`` to ``out``; the CSV has the last ten iterations, too."""
    table = pd.DataFrame([row for system in experiment.systems for row in _rows(experiment, system)])
    columns = _columns(table)
    lengths = [max(map(len, column)) + 3 for column in columns]
    edges, high = np.cumsum([0, *lengths]) / sum(lengths), len(columns[0])
    figure, axes = style.new_figure(1, 1, figsize=(max(7.0, sum(lengths) / _LETTERS_AN_INCH), 0.5 + 0.26 * high))
    axis = axes[0, 0]
    axis.grid(visible=False)
    axis.set(xticks=[], yticks=[], xlim=(0, 1), ylim=(high, 0))
    axis.spines[:].set_visible(False)
    for number, column in enumerate(columns):
        for row, cell in enumerate(column):
            align, x = ("left", edges[number] + 0.005) if number == 0 else ("right", edges[number + 1] - 0.01)
            axis.text(x, row + 0.5, cell, ha=align, va="center", weight="bold" if row == 0 else "normal", fontsize=9)
    axis.axhline(1, color=style.REFERENCE, linewidth=1)
    for row in range(2, high):
        axis.axhline(row, color=style.REFERENCE, linewidth=0.3, alpha=0.5)
    axis.set_title("Iteration times of each job: mean / 99th percentile (s)")
    left = len(experiment.runs[0].jobs) - _MOST_JOBS
    more = f" {drawing.count(left, 'more job')} in per-job.csv." if left > 0 else ""
    seeds = drawing.count(len({run.seed for run in experiment.runs}), "seed")
    about = f"All iterations; means over {seeds}. Ideal: computed, a job alone on the network. In isolation: measured.{more}"
    panels.caption(figure, panels.first_runs(experiment), about)
    return drawing.save(figure, table, out, "per-job")


def _columns(table: pd.DataFrame) -> list[list[str]]:
    """The columns of the drawing, with headers; a column that is unknown for every job is left out."""
    systems = {str(system): rows.head(_MOST_JOBS) for system, rows in table.groupby("system", sort=False)}
    first = next(iter(systems.values()))
    found = [["job", *(f"{row.job}  {row.trace}" for row in first.itertuples())]]
    for name, head in (("ideal_s", "ideal"), ("isolated_s", "in isolation")):
        if first[name].notna().any():
            found.append([head, *map(_seconds, first[name])])
    for system, rows in systems.items():
        found.append([system, *(f"{_seconds(row.mean_s)} / {_seconds(row.p99_s)}" for row in rows.itertuples())])
    return found


def _rows(experiment: Experiment, system: str) -> list[dict[str, object]]:
    runs = experiment.runs_of(system)
    isolated = [experiment.find_isolated_runs(run) for run in runs]
    found = []
    for job in runs[0].jobs:
        times = [run.times[job.job].dropna() for run in runs if job.job in run.times]
        found.append({
            "system": system, "job": job.job, "trace": job.trace, "mean_s": _mean([float(own.mean()) for own in times]),
            "p99_s": _mean([float(own.quantile(0.99)) for own in times]),
            "last10_mean_s": _mean([float(own.tail(metrics.STEADY_ITERATIONS).mean()) for own in times]),
            "ideal_s": job.ideal_s, "isolated_s": _mean([metrics.alone(one[job.job].times) for one in isolated if job.job in one]),
        })  # fmt: skip
    return found


def _mean(values: Sequence[float]) -> float:
    return float(np.mean(values)) if len(values) else float("nan")


def _seconds(value: object) -> str:
    return f"{value:.3f}" if isinstance(value, float) and value == value else "–"

"""The distribution of iteration times of each system: all jobs, all seeds, the first iterations included."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd

from testbed.core.runs.load import Experiment, Run
from testbed.report import drawing, style
from testbed.report.views import panels


def draw(experiment: Experiment, out: Path) -> list[Path]:
    """Write ``times.{png,pdf,csv}`` to ``out``: of jobs with different ideals as multiples of each job's own."""
    table = pd.concat([_times(run) for run in experiment.runs], ignore_index=True)
    ideals = sorted({job.ideal_s for job in experiment.runs[0].jobs if job.ideal_s is not None})
    relative = len(ideals) > 1 and bool(table["of_ideal"].notna().all())
    figure, axes = style.new_figure(1, 1, figsize=(8.0, 4.2))
    axis = axes[0, 0]
    for number, (system, rows) in enumerate(table.groupby("system", sort=False)):
        line = panels.LINES[number // len(style.JOBS) % len(panels.LINES)]
        values = rows["of_ideal" if relative else "iteration_s"]
        axis.ecdf(values, color=panels.colour(number), linestyle=line, linewidth=1.8, label=system)
    for number, ideal in enumerate([1.0] if relative else ideals):
        label = None if number else "ideal"
        axis.axvline(ideal, color=style.REFERENCE, linewidth=0.9, linestyle=(0, (1, 1.5)), label=label, zorder=1)
    axis.set_xlabel("iteration time ÷ the job's ideal" if relative else "iteration time (s)")
    axis.set_ylabel("share of iterations")
    axis.set_ylim(0, 1.02)
    axis.set_title("Iteration times")
    figure.legend(loc="outside right upper", fontsize=9)
    seeds = drawing.count(len({run.seed for run in experiment.runs}), "seed")
    panels.caption(figure, panels.first_runs(experiment), f"Every iteration of every job, {seeds}.")
    return drawing.save(figure, table, out, "times")


def _times(run: Run) -> pd.DataFrame:
    """A row for each iteration of a job."""
    rows = run.times.melt(var_name="job", value_name="iteration_s").dropna()
    ideals = {job.job: np.nan if job.ideal_s is None else job.ideal_s for job in run.jobs}
    rows["of_ideal"] = rows["iteration_s"] / rows["job"].map(ideals)
    return rows.assign(system=run.system, seed=run.seed)[["system", "seed", "job", "iteration_s", "of_ideal"]]

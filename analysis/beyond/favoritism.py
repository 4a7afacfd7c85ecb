"""Fig. 4 of the paper: the flows that F favours decide whether jobs separate or collide."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.ticker import MaxNLocator

from testbed.core.runs import measured, metrics
from testbed.core.runs.load import Experiment, Run
from testbed.report import drawing, fluid_comparison, style
from testbed.report.study import Study

ID = "favoritism"
POSITION = 30
TITLE = "Favouring the job that is ahead interleaves two jobs; favouring the one behind makes them overlap"
TEXT = (
    "Above, the communication phases of two jobs in every iteration of the first seed, seen from where the first job begins to communicate. Below, the "
    "share of its phase in which a job competes with the other (0: interleaved), a thin line a seed, mean and 95 % interval; dashed: the fluid model. "
    "Above the dotted line flows still learn."
)

LAST = 5  # iterations judged


def draw(study: Study, out: Path) -> list[Path]:
    """Write ``favoritism.{png,pdf,csv}``."""
    if not study.experiments:
        return []
    experiment = study.experiments[0]
    shown = [cc for cc, role in experiment.roles.items() if role == "treatment"]
    figure, axes = style.new_figure(
        2, max(2, len(shown)), figsize=(5.2 * max(2, len(shown)), 7.2), height_ratios=(1.0, 0.9)
    )
    period = max(float(metrics.pooled(experiment.runs_of(cc)[0].times).mean()) for cc in shown)
    for axis, cc in zip(axes[0], shown, strict=False):
        _waterfall(axis, experiment.runs_of(cc)[0], period)
        axis.set_title(f"{_direction(experiment.runs_of(cc)[0])} F: {cc}")
    axes[0, 0].legend(loc="lower right", bbox_to_anchor=(1.0, 0.985), ncols=2, columnspacing=1, handlelength=1.2)
    for axis in axes[0, len(shown) :]:
        axis.remove()
    for axis in axes[1, 1:]:
        axis.remove()
    axes[1, 0].remove()
    _overlaps(figure.add_subplot(axes[1, 0].get_gridspec()[1, :]), experiment)
    drawing.caption(figure, _caption(experiment))
    return drawing.save(figure, _table(experiment), out, ID)


def _direction(run: Run) -> str:
    at = fluid_comparison.curve(run)([0.0, 1.0])
    return "constant" if at[0] == at[1] else "increasing" if at[1] > at[0] else "decreasing"


def _waterfall(axis: Any, run: Run, period: float) -> None:
    """Communication phases, an iteration a line, seen from the first job's."""
    phases = metrics.phases(run.iterations)
    begins = phases[phases["job"] == 0].set_index("iteration")["begin_s"]
    for job in range(len(run.jobs)):
        rows = phases[phases["job"] == job]
        for iteration, origin in enumerate(begins):
            near = rows[(rows["end_s"] > origin - 0.45 * period) & (rows["begin_s"] < origin + 0.95 * period)]
            spans = [(begin - origin, end - begin) for begin, end in zip(near["begin_s"], near["end_s"], strict=True)]
            axis.broken_barh(
                spans, (iteration - 0.42 + 0.42 * job, 0.42), color=style.JOBS[job], linewidth=0,
                label=f"job {job}" if iteration == 0 else None,
            )  # fmt: skip
    axis.set_xlim(-0.45 * period, 0.95 * period)
    axis.set_ylim(float(phases["iteration"].max()) + 0.6, -0.6)
    axis.axhline(1.5, color=style.REFERENCE, linewidth=0.8, linestyle=":")
    axis.grid(visible=False, axis="y")
    axis.yaxis.set_major_locator(MaxNLocator(integer=True))
    axis.set_xlabel("time since job 0 began to communicate (s)")
    axis.set_ylabel("iteration")


def _overlaps(axis: Any, experiment: Experiment) -> None:
    styles = {"constant": style.REFERENCE, "increasing": style.JOBS[0], "decreasing": style.JOBS[1]}
    for cc in experiment.systems:
        runs = experiment.runs_of(cc)
        colour = styles[_direction(runs[0])]
        table = pd.DataFrame({run.seed: metrics.overlap(run.iterations).mean(axis="columns") for run in runs})
        drawing.bundle(axis, table, colour, f"{cc} ({_direction(runs[0])} F)")
        model = [_twin_overlap(run) for run in runs]
        axis.plot(
            table.index, np.mean(model, axis=0)[: len(table)], color=colour, linewidth=1.2, linestyle="--", zorder=5
        )
    axis.plot([], [], color=style.REFERENCE, linewidth=1.2, linestyle="--", label="fluid model, shares ∝ √F")
    axis.set_ylim(-0.03, 1.03)
    axis.set_xlabel("iteration")
    axis.set_ylabel("share of a phase\nthat is overlapped")
    axis.xaxis.set_major_locator(MaxNLocator(integer=True))
    axis.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=4, columnspacing=1.2, handlelength=1.6)


def _twin_overlap(run: Run) -> np.ndarray:
    model = fluid_comparison.flows([run], 0.5)
    _, iterations, jobs = model.end_s.shape
    job, iteration = np.meshgrid(np.arange(jobs), np.arange(iterations))
    rows = pd.DataFrame({
        "job": job.ravel(), "iteration": iteration.ravel(), "bytes": 1,
        "comm_start_s": model.comm_start_s[0].ravel(), "end_s": model.end_s[0].ravel(),
    })  # fmt: skip
    return metrics.overlap(rows).mean(axis="columns").to_numpy()


def _table(experiment: Experiment) -> pd.DataFrame:
    return pd.concat(
        [
            metrics.overlap(run.iterations)
            .reset_index()
            .melt("iteration", var_name="job", value_name="overlap")
            .assign(cc=run.system, seed=run.seed, direction=_direction(run))
            .assign(late=lambda rows: rows["iteration"] > rows["iteration"].max() - LAST)
            for run in experiment.runs
        ]
    )[["cc", "seed", "job", "iteration", "overlap", "direction", "late"]]


def _caption(experiment: Experiment) -> str:
    run = experiment.runs[0]
    seeds = len({run.seed for run in experiment.runs})
    return (
        f"{drawing.setting(run)}; two jobs of {fluid_comparison.compute_s(run)[0]:g} s and {measured.ideal_s(run) - fluid_comparison.compute_s(run)[0]:.3f} s, "
        f"noise {run.jobs[0].noise}; {drawing.count(seeds, 'seed')}"
    )

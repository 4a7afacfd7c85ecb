"""Fig. 4 of the paper: the flows that F favours decide whether jobs separate or collide."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.ticker import MaxNLocator

from testbed.core.runs import measured, metrics
from testbed.core.runs.load import Experiment, Run
from testbed.report import drawing, fluid_comparison, redrawing, style
from testbed.report.figures import Tables
from testbed.report.study import Study

ID = "favoritism"
PHASES, MODEL = f"{ID}-phases", f"{ID}-model"
POSITION = 30
TITLE = "Favouring the job that is ahead interleaves two jobs; favouring the one behind makes them overlap"
TEXT = (
    "Above, the communication phases of two jobs in every iteration of the first seed, seen from where the first job begins to communicate. Below, the "
    "share of its phase in which a job competes with the other (0: interleaved), a thin line a seed, mean and 95 % interval; dashed: the fluid model. "
    "Above the dotted line flows still learn."
)

LAST = 5  # iterations judged


def draw(study: Study, out: Path) -> list[Path]:
    """Write ``favoritism.{png,pdf,csv}``, and the tables of its phases (first seed) and of the fluid model."""
    if not study.experiments:
        return []
    experiment = study.experiments[0]
    tables = {ID: _table(experiment), PHASES: _phases(experiment), MODEL: _model(experiment)}
    return redrawing.publish(plot, tables, _caption(experiment), out)


def plot(tables: Tables) -> Any:
    """Communication phases under each F, and how much of them overlaps."""
    table, phases = tables[ID], tables[PHASES]
    shown = list(dict.fromkeys(phases["cc"]))
    figure, axes = style.new_figure(
        2, max(2, len(shown)), figsize=(5.2 * max(2, len(shown)), 7.2), height_ratios=(1.0, 0.9)
    )
    period = float(phases["mean_s"].max())
    directions = dict(zip(table["cc"], table["direction"], strict=True))
    for axis, cc in zip(axes[0], shown, strict=False):
        _waterfall(axis, phases[phases["cc"] == cc], period)
        axis.set_title(f"{directions[cc].capitalize()} F: {cc}")
    axes[0, 0].legend(loc="lower right", bbox_to_anchor=(1.0, 0.985), ncols=2, columnspacing=1, handlelength=1.2)
    for axis in axes[0, len(shown) :]:
        axis.remove()
    for axis in axes[1, 1:]:
        axis.remove()
    axes[1, 0].remove()
    _overlaps(figure.add_subplot(axes[1, 0].get_gridspec()[1, :]), table, tables[MODEL], directions)
    return figure


def _direction(run: Run) -> str:
    at = fluid_comparison.curve(run)([0.0, 1.0])
    return "constant" if at[0] == at[1] else "increasing" if at[1] > at[0] else "decreasing"


def _phases(experiment: Experiment) -> pd.DataFrame:
    """``cc, role, job, iteration, begin_s, end_s, mean_s`` of the first seed under MLTCP; ``mean_s``: of all its iterations."""
    found = []
    for cc, role in experiment.roles.items():
        if role == "treatment":
            run = experiment.runs_of(cc)[0]
            mean = float(metrics.pooled(run.times).mean())
            rows = metrics.phases(run.iterations)[["job", "iteration", "begin_s", "end_s"]]
            found.append(rows.assign(cc=cc, role=role, mean_s=mean))
    return pd.concat(found, ignore_index=True) if found else pd.DataFrame(columns=["cc", "role", "mean_s"])


def _model(experiment: Experiment) -> pd.DataFrame:
    """``cc, iteration, overlap``: the fluid model's share of a phase that is overlapped, mean over seeds."""
    found = []
    for cc in experiment.systems:
        mean = np.mean([_fluid_overlap(run) for run in experiment.runs_of(cc)], axis=0)
        found.append(pd.DataFrame({"cc": cc, "iteration": np.arange(len(mean)), "overlap": mean}))
    return pd.concat(found, ignore_index=True)


def _waterfall(axis: Any, phases: pd.DataFrame, period: float) -> None:
    """Communication phases, an iteration a line, seen from the first job's."""
    begins = phases[phases["job"] == 0].set_index("iteration")["begin_s"]
    for job in sorted(phases["job"].unique()):
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


def _overlaps(axis: Any, table: pd.DataFrame, model: pd.DataFrame, directions: dict[str, str]) -> None:
    styles = {"constant": style.REFERENCE, "increasing": style.JOBS[0], "decreasing": style.JOBS[1]}
    for cc, direction in directions.items():
        colour = styles[direction]
        lines = table[table["cc"] == cc].pivot_table(index="iteration", columns="seed", values="overlap")
        drawing.bundle(axis, lines, colour, f"{cc} ({direction} F)")
        mine = model[(model["cc"] == cc) & model["iteration"].isin(lines.index)]
        axis.plot(mine["iteration"], mine["overlap"], color=colour, linewidth=1.2, linestyle="--", zorder=5)
    axis.plot([], [], color=style.REFERENCE, linewidth=1.2, linestyle="--", label="fluid model, shares ∝ √F")
    axis.set_ylim(-0.03, 1.03)
    axis.set_xlabel("iteration")
    axis.set_ylabel("overlapped share\nof a phase")
    axis.xaxis.set_major_locator(MaxNLocator(integer=True))
    axis.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=4, columnspacing=1.2, handlelength=1.6)


def _fluid_overlap(run: Run) -> np.ndarray:
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

"""Whether jobs send in turn by themselves under LTP and MLT, if their rate depends on what of a round is delivered."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd

from testbed.core import system_text
from testbed.core.runs import measured
from testbed.core.runs.load import Experiment, LoadError, Run
from testbed.core.runs.plan import JobPlan
from testbed.report import drawing, redrawing, style
from testbed.report.figures import Tables
from testbed.report.study import Study

ID = "mlt-interleave"
POSITION = 350
TITLE = "With F two jobs under MLT interleave; under LTP F makes them slower"
TEXT = (
    "Mean iteration of two jobs on one link relative to isolation, over the iterations; pale lines are seeds. F takes what of a round is delivered, as "
    "MLTCP takes what of an iteration is sent. MLT adds F times as much to its rate; LTP probes F times as strongly."
)
SETTLED, CLOSE = 5, 1.05  # from that iteration on; times as long as in isolation


def draw(study: Study, out: Path) -> list[Path]:
    """Write ``mlt-interleave.{png,pdf,csv}``; the data: a row per system, seed and iteration."""
    rows = _table(study)
    note = f"{drawing.setting(study.runs[0])}; {drawing.count(rows['seed'].nunique(), 'seed')} (pale)"
    return redrawing.publish(plot, {ID: rows}, note, out)


def plot(tables: Tables) -> Any:
    """Iterations of each system."""
    rows = tables[ID]
    figure, axes = style.new_figure(1, 1, figsize=(8.6, 4.4))
    axis = axes[0, 0]
    for (system, mine), colour in zip(rows.groupby("system", sort=False), style.JOBS, strict=False):
        for _, seed in mine.groupby("seed"):
            axis.plot(seed["iteration"], seed["ratio"], color=colour, linewidth=0.6, alpha=0.3)
        means = mine.groupby("iteration")["ratio"].mean()
        axis.plot(means.index, means, color=colour, label=f"{system}: {means.iloc[SETTLED:].mean():.2f}")
    axis.axhline(1, color=style.REFERENCE, linewidth=0.8)
    axis.set(xlabel="iteration", ylabel="iteration ÷ isolated", ylim=(0.95, None))
    figure.legend(
        *axis.get_legend_handles_labels(),
        loc="outside upper center",
        ncols=2,
        fontsize=8,
        title=f"mean from iteration {SETTLED} on",
    )
    return figure


def _table(study: Study) -> pd.DataFrame:
    """``system, role, kind, by_f, seed, iteration, ratio``; raises `LoadError` without runs."""
    if not study.runs:
        raise LoadError(f"{ID}: there are no runs; run experiments/{ID}.toml")
    return pd.concat(
        [_rows(experiment, run) for experiment in study.experiments for run in experiment.runs], ignore_index=True
    )


def _rows(experiment: Experiment, run: Run) -> pd.DataFrame:
    """An iteration of all jobs: the mean of how long each took, its slowest worker's time."""
    part = system_text.part(run.jobs[0].transport)
    took = run.iterations.assign(s=run.iterations["end_s"] - run.iterations["start_s"])
    took = took.groupby(["job", "iteration"])["s"].max().reset_index()
    alone = measured.isolated_s(experiment, run)
    yardstick = {job.job: _ideal_s(job) if alone is None else float(alone[job.job]) for job in run.jobs}
    ratio = (took["s"] / took["job"].map(yardstick)).groupby(took["iteration"]).mean()
    return pd.DataFrame({
        "system": run.system, "role": run.role, "kind": part.name, "by_f": "f" in dict(part.options), "seed": run.seed,
        "iteration": ratio.index, "ratio": ratio.to_numpy(),
    })  # fmt: skip


def _ideal_s(job: JobPlan) -> float:
    if job.ideal_s is None:
        raise LoadError(f"job {job.job} is a real program, whose sending time is unknown")
    return job.ideal_s

"""Distributions of iteration times and gains of MLTCP: shared parts of the figures cdf-reno, cdf-cubic and cdf-dcqcn."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from testbed.core.runs.load import Experiment, LoadError, Run
from testbed.report import drawing, style
from testbed.report import observations as observed
from testbed.report.study import Study

NAMES = {"mean": "mean", "p99": "99th percentile"}
TEXT = (
    "Above: iteration times of all jobs ÷ ideal, under the base and under MLTCP by arm. Below: base ÷ MLTCP. Arm paper is the published rule alone, "
    "recommended adds three rules of ours, and placebo is recommended with F = 1. Steady state is the last half of the iterations, fixed before the run."
)


def draw(study: Study, out: Path, *, marks: bool = False) -> list[Path]:
    """Above, a CDF for each number of jobs; below, the speed-ups by arm (and ECN ``marks``).

    ``<id>.csv`` has the speed-ups, a row a seed, and ``<id>-p99.csv`` those of the 99th percentile of all jobs and seeds together.
    """
    points = [experiment for experiment in study.experiments if len(_gains_of(experiment))]
    if not points:
        raise LoadError(
            f"{study.id}: no seed was run under both a base and MLTCP; run experiments/{study.id}.toml again"
        )
    points.sort(key=lambda one: len(one.runs[0].jobs))
    across = max(len(points), 2 + marks)
    figure, axes = style.new_figure(1, 1, figsize=(max(9.5, 3.6 * across), 7.4))
    axes[0, 0].remove()
    above, below = figure.subfigures(2, 1, height_ratios=[1, 1.1])
    upper = above.subplots(1, len(points), squeeze=False, sharex=True, sharey=True).flatten()
    lower = below.subplots(1, 2 + marks)
    top = 1.05 * max(1.2, float(observed.table(Study("", tuple(points), ()))["p99"].max()))
    for axis, point in zip(upper, points, strict=True):
        _distribution(axis, point, top)
    upper[0].set_ylabel("share of iterations")
    upper[0].legend(loc="lower right", fontsize=8)
    gains = pd.concat([_gains_of(point) for point in points], ignore_index=True)
    for axis, metric in zip(lower, NAMES, strict=False):
        _speed_ups(axis, gains, metric)
    if marks:
        _marks_panel(lower[2], points)
    settled = [len(observed.select_steady(point.runs[0].times)) for point in points]
    drawing.caption(
        figure,
        f"{drawing.setting(points[0].runs[0])}; {_seeds(gains)} (dots), noise {(points[0].runs[0].jobs[0].noise or 'none').replace('%', ' %')}. "
        f"Steady state (full lines, filled dots): the last {' and '.join(map(str, dict.fromkeys(settled)))} iterations. Dotted and hollow: all. "
        "Dashed: what fair sharing at full overlap leaves to gain.",
    )
    pooled = pd.concat([observed.pooled_gains(point).assign(point=_name(point)) for point in points])
    return [*drawing.save(figure, gains, out, study.id), *drawing.write_tables({f"{study.id}-p99": pooled}, out)]


def _name(experiment: Experiment) -> str:
    run = experiment.runs[0]
    return f"{drawing.count(len(run.jobs), 'job')}, {drawing.rate(run.rate_bps)}"


def _gains_of(experiment: Experiment) -> pd.DataFrame:
    """A row a metric, arm, part of the iterations and seed: ``point, jobs, rate_bps, metric, iterations, arm, seed, speed_up, ceiling``."""
    table = observed.table(Study("", (experiment,), ()))
    systems = observed.by_arm(experiment.runs)
    if observed.BASE not in systems:
        return pd.DataFrame()
    first, rows = table.iloc[0], []
    for arm, system in systems.items():
        for metric in NAMES if arm != observed.BASE else ():
            for part, column in (("all", metric), ("settled", "settled" if metric == "mean" else "settled_p99")):
                rows.append(
                    observed.speed_ups(table, (systems[observed.BASE], system), column).assign(
                        point=_name(experiment), jobs=first["jobs"], rate_bps=first["rate_bps"], metric=metric, iterations=part, arm=arm,
                        ceiling=1 + first["load"] * (1 - 1 / first["jobs"]),
                    )
                )  # fmt: skip
    return pd.concat(rows, ignore_index=True) if rows else pd.DataFrame()


def _seeds(gains: pd.DataFrame) -> str:
    """How many there are at a point: ``10 seeds``, ``4 to 10 seeds``."""
    numbers = gains.groupby("point")["seed"].nunique()
    few = f"{numbers.min()} to " if numbers.min() < numbers.max() else ""
    return few + drawing.count(int(numbers.max()), "seed")


def _distribution(axis: Any, point: Experiment, top: float) -> None:
    for arm, system in observed.by_arm(point.runs).items():
        runs = point.runs_of(system)
        late = np.concatenate([_pool(observed.settled_times(point, run)) for run in runs])
        every = np.concatenate([_pool(observed.relative_times(point, run)) for run in runs])
        colour = drawing.ARMS[arm]
        axis.ecdf(late, color=colour, linewidth=2, label=system if arm == observed.BASE else arm)
        axis.ecdf(every, color=colour, linewidth=1, linestyle=":")
    axis.axvline(1, color=style.REFERENCE, linewidth=0.8, linestyle="--")
    axis.set_xlim(0.97, top)
    axis.set_xlabel("iteration time ÷ ideal")
    axis.set_title(_name(point), fontsize=10)


def _pool(times: pd.DataFrame) -> np.ndarray:
    values = times.to_numpy().ravel()
    return np.asarray(values[~np.isnan(values)])


def _speed_ups(axis: Any, gains: pd.DataFrame, metric: str) -> None:
    rows = gains[gains["metric"] == metric]
    points, arms = list(rows["point"].unique()), [arm for arm in observed.ARMS if arm in set(rows["arm"])]
    for x, point in enumerate(points):
        here = rows[rows["point"] == point]
        for place, arm in enumerate(arms):
            at = x + 0.28 * (place - (len(arms) - 1) / 2)
            own = here[here["arm"] == arm]
            settled = list(own[own["iterations"] == "settled"]["speed_up"])
            every = list(own[own["iterations"] == "all"]["speed_up"])
            drawing.seeds(axis, at, settled, drawing.ARMS[arm], width=0.14, label=arm if x == 0 else None)
            axis.plot(
                [at + 0.1] * len(every), every, "o", markersize=3.5, markerfacecolor="none", markeredgewidth=0.8, color=drawing.ARMS[arm],
            )  # fmt: skip
        axis.hlines(
            float(here["ceiling"].iloc[0]), x - 0.45, x + 0.45, color=style.REFERENCE, linewidth=1, linestyle="--"
        )
    axis.axhline(1, color=style.REFERENCE, linewidth=0.8)
    axis.set_ylim(min(0.9, 0.97 * float(rows["speed_up"].min())), max(2.0, 1.05 * float(rows["speed_up"].max())))
    axis.set_xticks(range(len(points)), points, fontsize=9)
    axis.grid(visible=False, axis="x")
    axis.set_ylabel("times as fast (base ÷ MLTCP)")
    axis.set_title(f"Gain of the {NAMES[metric]}", fontsize=10)
    axis.legend(loc="upper left", fontsize=8, ncols=3, columnspacing=1, handlelength=1.2)


def _marks(run: Run) -> float:
    """ECN marks per job and iteration in steady state."""
    times = run.times
    begin = float(times.iloc[: len(times) // 2].sum().mean())
    per_link = []
    for _, rows in run.links.groupby("link"):
        counted = np.interp([begin, float(rows["t_s"].max())], rows["t_s"], rows["ecn_marks"])
        per_link.append(counted[1] - counted[0])
    return float(max(per_link)) / (len(observed.select_steady(times)) * len(run.jobs))


def _marks_panel(axis: Any, points: list[Experiment]) -> None:
    for x, point in enumerate(points):
        systems = observed.by_arm(point.runs)
        for place, (arm, system) in enumerate(systems.items()):
            values = [_marks(run) for run in point.runs_of(system)]
            at = x + 0.2 * (place - (len(systems) - 1) / 2)
            name = (system if arm == observed.BASE else arm) if x == 0 else None
            drawing.seeds(axis, at, values, drawing.ARMS[arm], width=0.14, label=name, ratios=False)
    axis.set_ylim(bottom=0)
    axis.set_xticks(range(len(points)), [_name(point) for point in points], fontsize=9)
    axis.grid(visible=False, axis="x")
    axis.set_ylabel("marked packets per job and iteration")
    axis.set_title("ECN marks, steady state", fontsize=10)
    axis.legend(fontsize=8)

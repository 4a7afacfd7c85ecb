"""Distributions of iteration times and what MLTCP gains: what the figures cdf-reno, cdf-cubic and cdf-dcqcn share."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from testbed.core.runs.load import Experiment, LoadError, Run
from testbed.report import drawing, style
from testbed.report import observations as observed
from testbed.report.study import Study

ACROSS = 5  # distributions in a row
NAMES = {"mean": "mean", "p99": "99th percentile"}
TEXT = (
    "Above: the distribution of iteration times of all jobs, divided by the ideal (a job with the link to itself), for several "
    "numbers of jobs that together just fit the link. Further left is better; a vertical line at 1 is perfect interleaving. "
    "Below: how many times shorter the mean and the 99th percentile are than the base's, over all iterations and over the "
    "settled half. The first iterations are the base's by construction (MLTCP still learns), so that the 99th "
    "percentile over all of a short run cannot gain."
)


def draw(study: Study, out: Path, *, marks: bool = False) -> list[Path]:
    """Above, a CDF for each number of jobs; below, the speed-ups (and ECN ``marks``); the data of the lower panels as CSV."""
    points = [experiment for experiment in study.experiments if _paired(experiment)]
    if not points:
        raise LoadError(
            f"{study.id}: no seed was run under both a base and MLTCP; run experiments/{study.id}.toml again"
        )
    points.sort(key=lambda one: (one.runs[0].rate_bps, len(one.runs[0].jobs)))
    table = observed.table(Study(study.id, tuple(points), ()))
    across = min(len(points), ACROSS)
    rows = -(-len(points) // across)
    figure, axes = style.new_figure(1, 1, figsize=(max(11.0, 2.9 * across + 0.4), 3.5 + 3.1 * rows))
    axes[0, 0].remove()
    above, below = figure.subfigures(2, 1, height_ratios=[rows, 1.12])
    upper = above.subplots(rows, across, squeeze=False, sharex=True, sharey=True).flatten()
    for axis in upper[len(points) :]:
        axis.remove()
    lower = below.subplots(1, 2 + marks)
    top = 1.05 * max(1.2, float(table["p99"].max()))
    for axis, point in zip(upper, points, strict=False):
        _distribution(axis, point, top)
    for number, axis in enumerate(upper[: len(points)]):
        axis.set_ylabel("share of iterations" if number % across == 0 else "")
        axis.set_xlabel("iteration time ÷ ideal" if number + across >= len(points) else "")
        axis.tick_params(labelbottom=number + across >= len(points))
    upper[0].legend(loc="lower right", fontsize=8)
    gains = _gains(table)
    for axis, metric in zip(lower, ("mean", "p99"), strict=False):
        _speed_ups(axis, gains, metric)
    if marks:
        table["marks"] = [_marks(run) for point in points for run in point.runs]
        _marks_panel(lower[2], table, points)
    samples = [len(observed.select_steady(run.times)) * len(run.jobs) for point in points for run in point.runs[:1]]
    drawing.caption(
        figure,
        f"{drawing.setting(*(point.runs[0] for point in points))}. Upper row: thick lines, the second half of the iterations (settled); dotted, all of them; "
        "thin, single seeds.",
        f"Lower row: {_seeds(gains)} (dots), means and 95 % intervals, paired by seed. "
        f"A 99th percentile is of one run's iterations (settled: {', '.join(map(str, sorted(set(samples))))} of them).",
        "Fluid ceiling (equal jobs, one link): fair sharing at full overlap takes 1 + (1 − 1/n) load times the ideal, at most 2 − 1/n.",
    )
    pooled = pd.concat([observed.pooled_gains(point).assign(point=_name(point)) for point in points])
    return [*drawing.save(figure, gains, out, study.id), *drawing.write_tables({f"{study.id}-p99": pooled}, out)]


def _name(experiment: Experiment) -> str:
    run = experiment.runs[0]
    return f"{drawing.count(len(run.jobs), 'job')}, {drawing.rate(run.rate_bps)}"


def _paired(experiment: Experiment) -> bool:
    """Whether a seed was run under both the base and MLTCP."""
    pair = observed.pair(experiment.roles)
    return pair is not None and bool(set.intersection(*({run.seed for run in experiment.runs_of(cc)} for cc in pair)))


def _point(rows: pd.DataFrame) -> str:
    first = rows.iloc[0]
    return f"{drawing.count(first['jobs'], 'job')}, {drawing.rate(first['rate_bps'])}"


def _gains(table: pd.DataFrame) -> pd.DataFrame:
    """One row per point, metric, part of the iterations and seed: ``point, jobs, rate_bps, metric, iterations, seed, speed_up, ceiling``."""
    rows = []
    for _, of_point in table.groupby("experiment", sort=False):
        pair = observed.pair(observed.roles(of_point))
        if pair is None:
            continue
        first = of_point.iloc[0]
        for metric in ("mean", "p99"):
            for part, column in (("all", metric), ("settled", "settled" if metric == "mean" else "settled_p99")):
                rows.append(
                    observed.speed_ups(of_point, pair, column).assign(
                        point=_point(of_point), jobs=first["jobs"], rate_bps=first["rate_bps"], metric=metric, iterations=part,
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
    run = point.runs[0]
    for cc in observed.pair(point.roles) or ():
        tables = [observed.relative_times(point, run) for run in point.runs_of(cc)]
        late = [_pool([observed.settled_times(point, run)]) for run in point.runs_of(cc)]
        for values in late:
            axis.ecdf(values, color=drawing.colour(treatment=point.roles[cc] == "treatment"), linewidth=0.5, alpha=0.35)
        axis.ecdf(
            np.concatenate(late),
            color=drawing.colour(treatment=point.roles[cc] == "treatment"),
            linewidth=2.2,
            label=cc,
        )
        axis.ecdf(
            _pool(tables), color=drawing.colour(treatment=point.roles[cc] == "treatment"), linewidth=1.1, linestyle=":"
        )
    axis.axvline(1, color=style.REFERENCE, linewidth=0.8, linestyle="--")
    axis.set_xlim(0.97, top)
    axis.set_title(f"{drawing.count(len(run.jobs), 'job')}, {drawing.rate(run.rate_bps)}", fontsize=10)


def _pool(tables: list[pd.DataFrame]) -> np.ndarray:
    values = np.concatenate([times.to_numpy().ravel() for times in tables])
    return np.asarray(values[~np.isnan(values)])


def _speed_ups(axis: Any, gains: pd.DataFrame, metric: str) -> None:
    rows = gains[gains["metric"] == metric]
    points = list(rows["point"].unique())
    for part, shift, colour in (("all", -0.17, style.JOBS[4]), ("settled", 0.17, drawing.MLTCP)):
        for x, point in enumerate(points):
            values = rows[(rows["point"] == point) & (rows["iterations"] == part)]["speed_up"]
            what = "all iterations" if part == "all" else "settled half"
            drawing.seeds(axis, x + shift, list(values), colour, width=0.26, label=what if x == 0 else None)
    for x, point in enumerate(points):
        ceiling = float(rows[rows["point"] == point]["ceiling"].iloc[0])
        axis.hlines(ceiling, x - 0.4, x + 0.4, color=style.REFERENCE, linewidth=1, linestyle="--",
                    label="fluid ceiling" if x == 0 else None)  # fmt: skip
    axis.axhline(1, color=style.REFERENCE, linewidth=0.8)
    axis.set_ylim(min(0.9, 0.97 * float(rows["speed_up"].min())), max(2.0, 1.05 * float(rows["speed_up"].max())))
    axis.set_xticks(
        range(len(points)), [point.replace(", ", "\n") for point in points], fontsize=9 if len(points) <= 6 else 7
    )
    axis.grid(visible=False, axis="x")
    axis.set_ylabel("times as fast (base ÷ MLTCP)")
    axis.set_title(f"Speed-up of the {NAMES[metric]}", fontsize=10)
    axis.legend(loc="upper left", fontsize=8, ncols=3, columnspacing=1, handlelength=1.2)


def _marks(run: Run) -> float:
    """ECN marks per job and iteration in the settled half."""
    times = run.times
    begin = float(times.iloc[: len(times) // 2].sum().mean())
    per_link = []
    for _, rows in run.links.groupby("link"):
        counted = np.interp([begin, float(rows["t_s"].max())], rows["t_s"], rows["ecn_marks"])
        per_link.append(counted[1] - counted[0])
    return float(max(per_link)) / (len(observed.select_steady(times)) * len(run.jobs))


def _marks_panel(axis: Any, table: pd.DataFrame, points: list[Experiment]) -> None:
    names = [point.path.name for point in points]
    for x, name in enumerate(names):
        for shift, cc in zip((-0.17, 0.17), observed.pair(points[x].roles) or (), strict=True):
            values = table[(table["experiment"] == name) & (table["cc"] == cc)]["marks"]
            drawing.seeds(
                axis,
                x + shift,
                list(values),
                drawing.colour(treatment=shift > 0),
                width=0.26,
                label=cc if x == 0 else None,
                ratios=False,
            )
    axis.set_ylim(bottom=0)
    axis.set_xticks(
        range(len(names)), [f"{drawing.count(len(point.runs[0].jobs), 'job')}" for point in points], fontsize=8
    )
    axis.grid(visible=False, axis="x")
    axis.set_ylabel("marked packets per job and iteration")
    axis.set_title("ECN marks, settled half", fontsize=10)
    axis.legend(fontsize=8)

"""Fig. 5 of the paper: which functions F interleave, how soon, and where they end."""

from __future__ import annotations

from math import inf
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.ticker import MaxNLocator

from testbed.core.runs import measured
from testbed.core.runs.load import Experiment, Run
from testbed.models.curves import Curve
from testbed.report import drawing, fluid_comparison, redrawing, style
from testbed.report import observations as observed
from testbed.report.figures import Tables
from testbed.report.study import Study

ID = "curves"
TIMES, SHAPES = f"{ID}-times", f"{ID}-shapes"
POSITION = 40
TITLE = "Every increasing F interleaves two and four jobs; decreasing ones never do"
TEXT = (
    "Above, six functions F, and the iteration time of two jobs relative to the ideal, a thin line a seed. Below, the first iteration from which every job "
    "stays within 5 % of its time in isolation (bars: medians; top: never; diamonds: fluid model, shares ∝ F filled, ∝ √F hollow), and the last ten "
    "iterations (means, 95 % intervals)."
)
COLOURS = {
    "constant": style.REFERENCE, "linear": style.JOBS[0], "quadratic": style.JOBS[4], "reciprocal": style.JOBS[2], "concave": style.JOBS[3],
    "falling": style.JOBS[1], "falling_reciprocal": style.JOBS[5],
}  # fmt: skip
MARKERS = ("o", "s", "^", "v")  # of numbers of jobs


def draw(study: Study, out: Path) -> list[Path]:
    """Write ``curves.{png,pdf,csv}``, and the tables of the iterations with the fewest jobs and of the functions."""
    if not study.experiments:
        return []
    table = _table(study)
    smallest = min(study.experiments, key=lambda one: len(one.runs[0].jobs))
    note = f"{drawing.setting(study.runs[0])}; {drawing.count(table['seed'].nunique(), 'seed')}; “constant” is {_base(study)}"
    return redrawing.publish(plot, {ID: table, TIMES: _times(smallest), SHAPES: _functions(study.runs)}, note, out)


def plot(tables: Tables) -> Any:
    """The functions, iteration times, and for each function how soon jobs interleave and the steady state."""
    table = tables[ID]
    numbers, names = sorted(table["jobs"].unique()), [name for name in COLOURS if name in set(table["curve"])]
    figure, axes = style.new_figure(2, 2, figsize=(12.0, 8.6))
    _shapes(axes[0, 0], tables[SHAPES])
    _trajectories(axes[0, 1], tables[TIMES])
    _soon(axes[1, 0], table, numbers, names)
    _end(axes[1, 1], table, numbers, names)
    for axis in axes[1]:
        axis.set_xticks(range(len(names)), [name.replace("_", "\n") for name in names])
        axis.grid(visible=False, axis="x")
    return figure


def _base(study: Study) -> str:
    return next((run.system for run in study.runs if run.role != "treatment"), "F = 1")


def _table(study: Study) -> pd.DataFrame:
    """One row per run: ``jobs, curve, direction, seed, at, twin_one, twin_half, steady, iterations`` (steady ÷ ideal)."""
    rows = []
    for experiment in study.experiments:
        for cc in experiment.systems:
            runs = experiment.runs_of(cc)
            curve = fluid_comparison.curve(runs[0])
            ends = curve([0.0, 1.0])
            models = [
                fluid_comparison.flows(runs, exponent).interleaved_at(_ideals(runs[0])) for exponent in (1.0, 0.5)
            ]
            for number, run in enumerate(runs):
                rows.append({
                    "jobs": len(run.jobs), "curve": curve.name, "direction": int(np.sign(ends[1] - ends[0])), "arm": observed.arm(run), "seed": run.seed,
                    "at": measured.interleaved_at(experiment, run), "twin_one": models[0][number],
                    "twin_half": models[1][number], "steady": measured.last10_mean_s(run) / measured.ideal_s(run),
                    "iterations": run.jobs[0].iterations,
                })  # fmt: skip
    return pd.DataFrame(rows).sort_values("jobs", kind="stable")


def _ideals(run: Run) -> list[float]:
    return measured.ideals_s(run)


def _functions(runs: list[Run]) -> pd.DataFrame:
    """``curve, slope, intercept`` of every function."""
    found = {curve.name: curve for run in runs if (curve := fluid_comparison.curve(run))}
    return pd.DataFrame([{"curve": one.name, "slope": one.slope, "intercept": one.intercept} for one in found.values()])


def _times(experiment: Experiment) -> pd.DataFrame:
    """``jobs, curve, seed, iteration, time``: each iteration ÷ ideal, mean over jobs."""
    parts = []
    for run in experiment.runs:
        times = (run.times / measured.ideal_s(run)).mean(axis="columns")
        rows = pd.DataFrame({"iteration": times.index, "time": times.to_numpy()})
        parts.append(rows.assign(jobs=len(run.jobs), curve=fluid_comparison.curve(run).name, seed=run.seed))
    return pd.concat(parts, ignore_index=True)[["jobs", "curve", "seed", "iteration", "time"]]


def _shapes(axis: Any, functions: pd.DataFrame) -> None:
    r = np.linspace(0, 1, 101)
    for name, slope, intercept in zip(functions["curve"], functions["slope"], functions["intercept"], strict=True):
        axis.plot(r, Curve(name, slope, intercept)(r), color=COLOURS[name], linewidth=2, label=name.replace("_", " "))
    axis.set(xlabel="bytes_ratio r", ylabel="F(r)", title="Functions F")
    axis.legend(loc="upper center", ncols=2, fontsize=8, bbox_to_anchor=(0.5, 1.0))
    axis.set_ylim(0, 2.75)


def _trajectories(axis: Any, times: pd.DataFrame) -> None:
    for name in dict.fromkeys(times["curve"]):
        lines = times[times["curve"] == name].pivot_table(index="iteration", columns="seed", values="time")
        drawing.bundle(axis, lines, COLOURS[name], name.replace("_", " "), band=False)
    axis.axhline(1, color=style.REFERENCE, linewidth=0.8, linestyle="--")
    axis.xaxis.set_major_locator(MaxNLocator(integer=True))
    axis.set(
        xlabel="iteration",
        ylabel="iteration time ÷ ideal",
        title=f"Iterations of {drawing.count(int(times['jobs'].iloc[0]), 'job')}",
    )


def _soon(axis: Any, table: pd.DataFrame, numbers: list[int], names: list[str]) -> None:
    never = 1.05 * float(table["iterations"].max())
    for i, number in enumerate(numbers):
        for x, name in enumerate(names):
            rows = table[(table["jobs"] == number) & (table["curve"] == name)]
            at = x + (i - (len(numbers) - 1) / 2) * 0.8 / len(numbers)
            drawing.medians(
                axis,
                at,
                list(rows["at"]),
                never,
                COLOURS[name],
                width=0.6 / len(numbers),
                marker=MARKERS[i % len(MARKERS)],
            )
            for column, filled in (("twin_one", True), ("twin_half", False)):
                model = float(rows[column].median()) if len(rows) else inf
                if model < inf:
                    axis.plot(
                        at,
                        model,
                        "D",
                        markersize=6,
                        color=style.REFERENCE,
                        fillstyle="full" if filled else "none",
                        zorder=5,
                    )
    axis.axhline(never, color=style.REFERENCE, linewidth=0.6, linestyle=":")
    axis.annotate(
        "never",
        (0, never),
        xycoords=("axes fraction", "data"),
        fontsize=8,
        color=style.REFERENCE,
        va="bottom",
        xytext=(3, 6),
        textcoords="offset points",
    )
    for number, marker in zip(numbers, MARKERS, strict=False):
        axis.plot([], [], marker, color=style.REFERENCE, markersize=4, label=f"{drawing.count(number, 'job')}")
    axis.plot([], [], "D", color=style.REFERENCE, markersize=6, label="fluid model, ∝ F")
    axis.plot([], [], "D", color=style.REFERENCE, markersize=6, fillstyle="none", label="fluid model, ∝ √F")
    axis.set(ylabel="iterations", title="Iterations until interleaved", ylim=(0, 1.12 * never))
    axis.set_xlim(-0.6, len(names) - 0.4)
    axis.yaxis.set_major_locator(MaxNLocator(integer=True))
    axis.legend(fontsize=8, ncols=2, loc="lower right")


def _end(axis: Any, table: pd.DataFrame, numbers: list[int], names: list[str]) -> None:
    for i, number in enumerate(numbers):
        for x, name in enumerate(names):
            rows = table[(table["jobs"] == number) & (table["curve"] == name)]
            if len(rows):
                drawing.seeds(
                    axis,
                    x + (i - (len(numbers) - 1) / 2) * 0.8 / len(numbers),
                    list(rows["steady"]),
                    COLOURS[name],
                    width=0.6 / len(numbers),
                )
    axis.axhline(1, color=style.REFERENCE, linewidth=0.8, linestyle="--")
    axis.set(
        ylabel="last ten iterations ÷ ideal",
        title="Last ten iterations"
        + (f" (from left to right: {', '.join(map(str, numbers))} jobs)" if len(numbers) > 1 else ""),
    )

"""What holes in gradients cost a training: accuracy by round and by second, with exactly what the network lost."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from analysis import drawing, glyphs, phases, style, trainings
from analysis import observations as observed
from analysis.finding import Finding, graded, not_measured
from analysis.study import Study
from core.runs.load import LoadError, Run
from theory import learning
from theory.statistics import equivalent, geometric_mean, interval, log_interval, ratio_ends

ID = "ltp-accuracy"
PAPER = "LTP"
TITLE = "What missing gradients cost in accuracy"
TEXT = (
    "A small model learns to read letters; its gradients have the holes that the network left. Left: accuracy by round; what differs there is lost "
    "data alone. Middle: by second, where a faster transport is ahead. Right: accuracy after the last round less that of the same training with "
    "nothing missing; within the dashed lines it is within 1 %. Three ways to fill a hole: zeros (as published), the mean of the workers that delivered, "
    "or each worker adds to its next gradient what was lost."
)
ACCURACY = "LTP loses no accuracy."
SOONER = "A training over LTP is at 95 % of its last accuracy sooner than over the fastest TCP."
SOURCES = {ACCURACY: "LTP, abstract [published]", SOONER: "ours"}
CONTROLS = {
    ACCURACY: "a network from which nothing arrives of most workers",
    SOONER: "a network from which nothing arrives of most workers",
}
WITHIN = 0.01  # of accuracy
NEAR = 0.95
FILLS: tuple[learning.Fill, ...] = ("zero", "contributors", "feedback")
WHOLE = "nothing missing"


def draw(study: Study, out: Path) -> list[Path]:
    """Write ``ltp-accuracy.{png,pdf,csv}``; the data: a row per training and look at its accuracy."""
    rows = _table(study)
    figure, axes = style.new_figure(1, 3, figsize=(14, 4.6), width_ratios=[1, 1, 0.8])
    rounds, seconds, last = axes[0]
    kinds = list(dict.fromkeys(rows["training"]))
    colours = dict(zip(kinds, (*style.JOBS, *style.JOBS), strict=False))
    for kind in kinds:
        mine = rows[rows["training"] == kind].groupby("round")["accuracy"]
        rounds.plot(mine.mean().index, 100 * mine.mean(), color=colours[kind], label=kind)
        rounds.fill_between(
            mine.mean().index, 100 * mine.min(), 100 * mine.max(), color=colours[kind], alpha=0.12, linewidth=0
        )
    for system, cell in rows[rows["fill"].isin(["", FILLS[0]])].groupby("system", sort=False):
        mean = cell.groupby("round")[["end_s", "accuracy"]].mean()
        kind = str(cell["training"].iloc[0])
        dashes = "-" if kind != WHOLE else (0, (4, 1 + 2 * list(rows["system"].unique()).index(system)))
        seconds.plot(mean["end_s"], 100 * mean["accuracy"], color=colours[kind], linestyle=dashes, label=str(system))
    _differences(last, rows, colours)
    rounds.set(xlabel="round", ylabel="accuracy (%)", title="By round")
    seconds.set(xlabel="time (s)", ylabel="accuracy (%)", title="By time, holes as zeros")
    seconds.legend(fontsize=8.5, loc="lower right")
    figure.legend(*rounds.get_legend_handles_labels(), loc="outside upper center", ncols=4, fontsize=9)
    one, task = study.runs[0], glyphs.task()
    drawing.caption(
        figure,
        f"{len(one.jobs[0].hosts) - 1} workers, {drawing.setting(one)}; {drawing.count(rows['seed'].nunique(), 'seed')} (bands: all of them; dots).",
        f"A perceptron of {task.parameters:,} numbers, {task.batch} examples a worker and round; {len(task.test.classes):,} letters to be told apart.",
    )
    return drawing.save(figure, rows, out, ID)


def find(study: Study) -> list[Finding]:
    """Two findings: the last accuracy with holes as zeros, and the time to 95 % of it."""
    try:
        rows = _table(study)
    except LoadError as error:
        return [not_measured(claim, SOURCES[claim], str(error)) for claim in SOURCES]
    return [_accuracy(study, rows), _sooner(study, rows)]


def _accuracy(study: Study, rows: pd.DataFrame) -> Finding:
    differences = _last(rows)
    mine = [float(v) for v in differences.get((phases.lossy(study), FILLS[0]), {}).values()]
    if not mine:
        return not_measured(ACCURACY, SOURCES[ACCURACY], "no run with LTP's own defaults is there")
    arrived = rows[rows["system"] == phases.lossy(study)]["delivered"].mean()
    mean = float(np.mean(mine))
    ends = equivalent(mine)
    said = "; ".join(
        f"{100 * float(np.mean(list(one.values()))):+.2f} {system}, {fill}"
        for (system, fill), one in differences.items()
    )
    return Finding(
        ACCURACY, SOURCES[ACCURACY],
        f"last accuracy less that with nothing missing, in percentage points: {said}; {arrived:.1%} of LTP's gradients arrived",
        100 * mean, "percentage points of accuracy, holes as zeros", None if (found := interval(mine)) is None else (100 * found[0], 100 * found[1]), len(mine),
        graded(ends is not None and max(map(abs, ends)) <= WITHIN, abs(mean) <= WITHIN),
        f"reproduced if it is equivalent within {WITHIN:.0%} (two one-sided tests at 5 %), partly if its mean is",
        study.paths,
    )  # fmt: skip


def _sooner(study: Study, rows: pd.DataFrame) -> Finding:
    times = {
        str(system): _near_s(cell)
        for system, cell in rows[rows["fill"].isin(["", FILLS[0]])].groupby("system", sort=False)
    }
    stock = [system for system in times if set(rows[rows["system"] == system]["role"]) == {"baseline"}]
    own = phases.lossy(study)
    if own not in times or not stock:
        return not_measured(SOONER, SOURCES[SOONER], "LTP was not run beside a stock TCP")
    best = min(stock, key=lambda system: sum(at or inf for at in times[system].values()))
    mine = {seed: at for seed, at in times[own].items() if seed in times[best]}
    ratios = [base / at for seed, at in mine.items() if at and (base := times[best][seed])]
    said = f"{drawing.count(len(ratios), 'seed')} of {len(mine)} came there"
    return Finding(
        SOONER, SOURCES[SOONER],
        f"time to {NEAR:.0%} of the last accuracy with nothing missing, {best} ÷ LTP: "
        + (f"{observed.with_interval(ratios)}; {said}" if ratios else said),
        geometric_mean(ratios) if ratios else None, f"× as soon as over {best}" if ratios else "", log_interval(ratios), len(mine),
        graded(len(ratios) == len(mine) and ratio_ends(ratios)[0] > 1, bool(ratios) and geometric_mean(ratios) > 1),
        "reproduced if it is surely sooner in every seed, partly if in the mean of those that come there",
        study.paths,
    )  # fmt: skip


def _near_s(rows: pd.DataFrame) -> dict[int, float | None]:
    """By seed: when a training first was near the last accuracy of the one with nothing missing; None: never."""
    found: dict[int, float | None] = {}
    for seed, mine in rows.groupby("seed"):
        there = mine[mine["accuracy"] >= NEAR * mine["whole"]]
        found[int(str(seed))] = float(there["end_s"].min()) if len(there) else None
    return found


def _last(rows: pd.DataFrame) -> dict[tuple[str, str], dict[int, float]]:
    """By system that loses, and fill: by seed the last accuracy less that of the training with nothing missing."""
    end = rows[(rows["round"] == rows["round"].max()) & (rows["fill"] != "")]
    return {
        (str(system), str(fill)): {
            int(row["seed"]): float(row["accuracy"] - row["whole"]) for _, row in cell.iterrows()
        }
        for (system, fill), cell in end.groupby(["system", "fill"], sort=False)
    }


def _differences(axis: Any, rows: pd.DataFrame, colours: dict[str, str]) -> None:
    """A row a training that loses: dots are seeds."""
    end = rows[(rows["round"] == rows["round"].max()) & (rows["fill"] != "")]
    kinds = list(dict.fromkeys(end["training"]))
    for y, kind in enumerate(kinds):
        mine = 100 * (end[end["training"] == kind]["accuracy"] - end[end["training"] == kind]["whole"])
        axis.plot(mine, np.full(len(mine), y), "o", color=colours[kind], markersize=5)
        axis.plot(mine.mean(), y, "k|", markersize=16, markeredgewidth=1.6)
    for limit in (-100 * WITHIN, 100 * WITHIN):
        axis.axvline(limit, color=style.REFERENCE, linewidth=0.9, linestyle="--")
    axis.axvline(0, color=style.REFERENCE, linewidth=0.6)
    axis.set_yticks(range(len(kinds)), kinds, fontsize=8)
    axis.set_ylim(len(kinds) - 0.5, -0.5)
    axis.grid(visible=False, axis="y")
    axis.set(xlabel="percentage points", title="Last accuracy, less that\nwith nothing missing")


def _table(study: Study) -> pd.DataFrame:
    """``system, role, fill, training, seed, round, end_s, accuracy, whole, delivered``: ``whole`` is the last accuracy with nothing missing."""
    runs = [run for run in study.runs if run.plan.jobs[0].bytes_per_worker[-1] == glyphs.task().bytes]
    if not any(trainings.served(run) is not None for run in runs):
        raise LoadError(f"{ID}: there are no runs that say where their holes are; run experiments/{ID}.toml")
    rows = [row for run in runs for row in _trained(run)]
    return pd.DataFrame(rows)


def _trained(run: Run) -> list[dict[str, Any]]:
    rounds, workers = run.jobs[0].iterations, len(run.jobs[0].hosts) - 1
    ends = run.iterations.groupby("iteration")["end_s"].max().to_numpy()
    whole = _whole(rounds, workers, run.seed)
    holes = trainings.served(run)
    fills: Sequence[learning.Fill | None] = (None,) if holes is None else FILLS
    found = []
    for fill in fills:
        curve = whole if holes is None or fill is None else trainings.filled(holes, fill, run.seed)
        found += [
            {
                "system": run.system, "role": run.role, "fill": fill or "", "training": WHOLE if fill is None else f"{run.system}, {fill}",
                "seed": run.seed, "round": number, "end_s": float(ends[number - 1]), "accuracy": float(accuracy), "whole": float(whole[-1]),
                "delivered": phases.delivered(run),
            }
            for number, accuracy in zip(range(glyphs.task().every, rounds + 1, glyphs.task().every), curve, strict=True)
        ]  # fmt: skip
    return found


def _whole(rounds: int, workers: int, seed: int) -> np.ndarray:
    return trainings.filled((((),) * workers,) * rounds, FILLS[0], seed)

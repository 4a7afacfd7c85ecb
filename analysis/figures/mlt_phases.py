"""A tolerance that follows the training's phase, beside constant ones and TCP, where a link loses packets in bursts."""

from __future__ import annotations

from math import inf
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from analysis import drawing, glyphs, style, trainings
from analysis import observations as observed
from analysis.finding import Finding, graded, not_measured
from analysis.study import Study
from core.runs.load import LoadError, Run
from theory.statistics import geometric_mean, log_interval, ratio_ends

ID = "mlt-phases"
PAPER = "MLT"
TITLE = "A tolerance that follows the training"
TEXT = (
    "A small model learns to read letters while one of three workers' links loses packets in bursts; its gradients have the holes that the network left. "
    "Left: the share that is missing, by round. Middle: accuracy by time; dots: 95 % of the last accuracy with nothing missing. Right: how long rounds take, in "
    "the mean (bars) and at the 99th percentile (dots: seeds)."
)
SOONER = "A tolerance that follows the training's phase brings a training sooner to 95 % of its accuracy than a constant one."
ROUND = "In bursts of loss a round ends sooner than over TCP."
SOURCES = {
    SOONER: "DBLP, abstract: training time −24.4 % in the mean, −33.9 % at most, against its baseline",
    ROUND: "DBLP, abstract: a single round's latency 5.88 times lower in microbursts",
}
CONTROLS = {SOONER: "systems that all take as long", ROUND: "systems that all take as long"}
NEAR = 0.95  # of the last accuracy with nothing missing


def draw(study: Study, out: Path) -> list[Path]:
    """Write ``mlt-phases.{png,pdf,csv}``; the data: a row per training and look at its accuracy."""
    rows = _table(study)
    figure, axes = style.new_figure(1, 3, figsize=(14, 4.6), width_ratios=[1, 1, 0.9])
    lost, seconds, lengths = axes[0]
    systems = list(dict.fromkeys(rows["system"]))
    for colour, system in zip(style.JOBS, systems, strict=False):
        mine = rows[rows["system"] == system]
        means = mine.groupby("round")[["missing", "end_s", "accuracy"]].mean()
        lost.plot(means.index, 100 * means["missing"], color=colour, label=system)
        seconds.plot(means["end_s"], 100 * means["accuracy"], color=colour)
        there = [at for at in _near_s(mine).values() if at is not None]
        if there:
            seconds.plot(np.mean(there), 100 * NEAR * mine["whole"].mean(), "o", color=colour, markersize=6)
    for y, system in enumerate(systems):
        mine = rows[rows["system"] == system].drop_duplicates("seed")
        lengths.barh(y, 1e3 * mine["mean_s"].mean(), height=0.5, color=style.JOBS[y % len(style.JOBS)])
        lengths.plot(1e3 * mine["p99_s"], [y] * len(mine), "o", color="black", markersize=3)
    lengths.set_yticks(range(len(systems)), [""] * len(systems))
    lengths.set_ylim(len(systems) - 0.5, -0.5)
    lengths.grid(visible=False, axis="y")
    lost.set(xlabel="round", ylabel="missing of gradients (%)", title="Missing", ylim=(0, None))
    seconds.set(xlabel="time (s)", ylabel="accuracy (%)", title="By time")
    lengths.set(xlabel="time of a round (ms)", title="Rounds")
    figure.legend(*lost.get_legend_handles_labels(), loc="outside upper center", ncols=2, fontsize=9)
    one, task = study.runs[0], glyphs.task()
    drawing.caption(
        figure,
        f"{len(one.jobs[0].hosts) - 1} workers and a server, {drawing.setting(one)}; {drawing.count(rows['seed'].nunique(), 'seed')}.",
        f"A perceptron of {task.parameters:,} numbers; holes are zeros. A phase is ours: DBLP's rule is not known to us.",
    )
    return drawing.save(figure, rows, out, ID)


def find(study: Study) -> list[Finding]:
    """Two findings: the time to 95 % of the accuracy, and the longest rounds."""
    try:
        rows = _table(study)
    except LoadError as error:
        return [not_measured(claim, SOURCES[claim], str(error)) for claim in SOURCES]
    return [_sooner(study, rows), _round(study, rows)]


def _sooner(study: Study, rows: pd.DataFrame) -> Finding:
    times = {(kind, system): _near_s(mine) for (kind, system), mine in rows.groupby(["kind", "system"], sort=False)}
    own, constant = ([name for name in times if name[0] == kind] for kind in ("phase", "constant"))
    if not own or not constant:
        return not_measured(SOONER, SOURCES[SOONER], "no tolerance that follows a phase was run beside a constant one")
    best, beside = (
        min(names, key=lambda name: float(np.mean([inf if at is None else at for at in times[name].values()])))
        for names in (own, constant)
    )
    ratios = [other / at for seed, at in times[best].items() if at and (other := times[beside].get(seed))]
    seeds = len(times[best])
    said = "; ".join(
        f"{system} {drawing.count(sum(at is not None for at in each.values()), 'seed')} there"
        + (f", {np.mean(there):.2f} s" if (there := [at for at in each.values() if at is not None]) else "")
        for (_, system), each in times.items()
    )
    return Finding(
        SOONER, SOURCES[SOONER],
        f"time to {NEAR:.0%} of the last accuracy with nothing missing: {said}; the best constant tolerance's ({beside[1]}) ÷ that of {best[1]}: "
        + (observed.with_interval(ratios) if ratios else "never there"),
        geometric_mean(ratios) if ratios else None, "× as soon as with the best constant tolerance" if ratios else "",
        log_interval(ratios) if ratios else None, len(ratios),
        graded(len(ratios) == seeds and ratio_ends(ratios)[0] > 1, bool(ratios) and geometric_mean(ratios) > 1.001),
        "reproduced if surely sooner in every seed, partly if in the mean of those that come there",
        study.paths,
    )  # fmt: skip


def _round(study: Study, rows: pd.DataFrame) -> Finding:
    runs = rows.drop_duplicates(["system", "seed"])
    stock = runs[runs["kind"] == "reliable"].set_index("seed")["p99_s"]
    longest = {
        str(system): [
            stock[seed] / value for seed, value in zip(mine["seed"], mine["p99_s"], strict=True) if seed in stock
        ]
        for system, mine in runs[runs["kind"] != "reliable"].groupby("system", sort=False)
    }
    if stock.empty or not longest:
        return not_measured(ROUND, SOURCES[ROUND], "MLT was not run beside TCP")
    best = max(longest, key=lambda system: geometric_mean(longest[system]))
    return Finding(
        ROUND, SOURCES[ROUND],
        "99th percentile of a round's time, TCP's ÷ MLT's: "
        + "; ".join(f"{observed.with_interval(values)} {system}" for system, values in longest.items()),
        geometric_mean(longest[best]), f"× as short as over TCP, {best}", log_interval(longest[best]), len(longest[best]),
        graded(ratio_ends(longest[best])[0] > 1, geometric_mean(longest[best]) > 1.001),
        "reproduced if surely shorter, partly if in the mean",
        study.paths,
    )  # fmt: skip


def _near_s(rows: pd.DataFrame) -> dict[int, float | None]:
    """By seed: when a training first was near the last accuracy of the one with nothing missing; None: never."""
    found: dict[int, float | None] = {}
    for seed, mine in rows.groupby("seed"):
        there = mine[mine["accuracy"] >= NEAR * mine["whole"]]
        found[int(str(seed))] = float(there["end_s"].min()) if len(there) else None
    return found


def _table(study: Study) -> pd.DataFrame:
    """``system, kind, role, seed, round, end_s, accuracy, whole, missing, mean_s, p99_s``; raises `LoadError` where nothing fits."""
    runs = [run for run in study.runs if run.plan.jobs[0].bytes_per_worker[-1] == glyphs.task().bytes]
    if len({_kind(run) for run in runs}) < 2:
        raise LoadError(f"{ID}: there are no runs of MLT beside others; run experiments/{ID}.toml")
    return pd.DataFrame([row for run in runs for row in _looks(run)])


def _kind(run: Run) -> str:
    if run.jobs[0].by_tcp:
        return "reliable"
    return "phase" if trainings.follows(run) else "constant"


def _looks(run: Run) -> list[dict[str, Any]]:
    rounds, workers, every = run.jobs[0].iterations, len(run.jobs[0].hosts) - 1, glyphs.task().every
    ends = run.iterations.groupby("iteration")["end_s"].max().to_numpy()
    times = np.diff(ends)
    nothing = trainings.nothing(workers) * rounds
    holes = trainings.served(run) or nothing
    curve = trainings.filled(holes, "zero", run.seed)
    whole = float(trainings.filled(nothing, "zero", run.seed)[-1])
    lost = [sum(size for spans in each for _, size in spans) / (workers * glyphs.task().bytes) for each in holes]
    return [
        {
            "system": run.system, "kind": _kind(run), "role": run.role, "seed": run.seed, "round": number, "end_s": float(ends[number - 1]),
            "accuracy": float(accuracy), "whole": whole, "missing": float(np.mean(lost[number - every : number])),
            "mean_s": float(times.mean()), "p99_s": float(np.percentile(times, 99)),
        }
        for number, accuracy in zip(range(every, rounds + 1, every), curve, strict=True)
    ]  # fmt: skip

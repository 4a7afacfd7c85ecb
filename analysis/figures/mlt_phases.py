"""A tolerance that follows the training's phase, beside constant ones and TCP, where a link loses packets in bursts."""

from __future__ import annotations

from math import inf
from pathlib import Path

import numpy as np
import pandas as pd

from analysis import drawing, style, trainings
from analysis import observations as observed
from analysis.finding import Finding, graded, not_measured
from analysis.study import Study
from core.runs.load import LoadError, Run
from theory import learning
from theory.statistics import geometric_mean, log_interval, ratio_ends

ID = "mlt-phases"
PAPER = "MLT"
TITLE = "A tolerance that follows the training"
TEXT = (
    "A small model learns over the emulated network, closed loop, while one of three workers' links loses packets in bursts. "
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
    one = study.runs[0]
    model = trainings.model(one)
    drawing.caption(
        figure,
        f"{len(one.jobs[0].hosts) - 1} workers and a server, {drawing.setting(one)}; {drawing.count(rows['seed'].nunique(), 'seed')}.",
        f"{learning.title(model)[0].upper()}{learning.title(model)[1:]}, {learning.task(model).parameters:,} numbers; holes are zeros. A phase is ours: DBLP's rule is not known to us.",
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
    runs = [run for run in study.runs if trainings.model(run)]
    curves = [trainings.learnt(run) for run in runs]
    whole = {
        run.seed: float(curve["accuracy"].iloc[-1])
        for run, curve in zip(runs, curves, strict=True)
        if not trainings.loses(run)
    }
    both = [(run, curve) for run, curve in zip(runs, curves, strict=True) if run.seed in whole]
    if len({_kind(run) for run, _ in both}) < 2:
        raise LoadError(f"{ID}: there are no trainings over MLT beside others; run experiments/{ID}.toml")
    return pd.concat([_rows(run, curve, whole[run.seed]) for run, curve in both], ignore_index=True)


def _kind(run: Run) -> str:
    if run.jobs[0].by_tcp:
        return "reliable"
    return "phase" if trainings.follows(run) else "constant"


def _rows(run: Run, curve: pd.DataFrame, whole: float) -> pd.DataFrame:
    times = np.diff(run.iterations.groupby("iteration")["end_s"].max().to_numpy())
    return curve.assign(
        system=run.system, kind=_kind(run), role=run.role, seed=run.seed, whole=whole, mean_s=float(times.mean()),
        p99_s=float(np.percentile(times, 99)),
    )  # fmt: skip

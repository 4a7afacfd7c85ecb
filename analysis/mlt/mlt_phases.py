"""A tolerance that follows the training's phase, compared with constant ones and TCP, where a link drops packets in bursts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from testbed.core.runs.load import LoadError, Run
from testbed.models.statistics import geometric_mean
from testbed.report import drawing, redrawing, style, trainings
from testbed.report.figures import Tables
from testbed.report.study import Study

ID = "mlt-phases"
POSITION = 330
TITLE = "A tolerance that follows the training does not reach the accuracy measurably sooner than a constant one"
TEXT = (
    "A small model learns over the emulated network while one worker's link loses packets in bursts. Left: share missing, by round. Middle: accuracy by "
    "time; dots: 95 % of the last accuracy with nothing missing. Right: time of a round, mean (squares) and 99th percentile (dots: seeds), over the loss "
    "in bursts."
)
NEAR = 0.95  # of the last accuracy with nothing missing


def draw(study: Study, out: Path) -> list[Path]:
    """Write ``mlt-phases.{png,pdf,csv}``; the data: a row per training and look at its accuracy."""
    rows, one = _table(study), study.runs[0]
    note = (
        f"{drawing.count(len(one.jobs[0].hosts) - 1, 'worker')} and a server, {drawing.setting(one)}; {drawing.count(rows['seed'].nunique(), 'seed')}.\n"
        f"{trainings.described(one)}; missing ranges are zeros. A phase is ours: DBLP's rule is not known to us."
    )
    return redrawing.publish(plot, {ID: rows, f"{ID}-near": _near(rows)}, note, out)


def plot(tables: Tables) -> Any:
    """Share missing by round, accuracy by time, and the times of rounds."""
    rows = tables[ID]
    figure, axes = style.new_figure(1, 3, figsize=(14, 4.6), width_ratios=[1, 1, 0.9])
    lost, seconds, lengths = axes[0]
    colours = dict(zip(dict.fromkeys(rows["system"]), style.JOBS, strict=False))
    shares = sorted(rows["burst"].unique())
    shown = shares[len(shares) // 2]
    for system, colour in colours.items():
        mine = rows[(rows["system"] == system) & (rows["burst"] == shown)]
        means = mine.groupby("round")[["missing", "end_s", "accuracy"]].mean()
        lost.plot(means.index, 100 * means["missing"], color=colour, label=system)
        seconds.plot(means["end_s"], 100 * means["accuracy"], color=colour)
        there = [at for at in _near_s(mine).values() if at is not None]
        if there:
            seconds.plot(np.mean(there), 100 * NEAR * mine["whole"].mean(), "o", color=colour, markersize=6)
    for place, share in enumerate(shares):
        for step, (system, colour) in enumerate(colours.items()):
            mine = rows[(rows["system"] == system) & (rows["burst"] == share)].drop_duplicates("seed")
            if mine.empty:  # not everything is run with every burst
                continue
            y = place + (step - (len(colours) - 1) / 2) * 0.8 / len(colours)
            ends = [1e3 * mine["mean_s"].mean(), 1e3 * geometric_mean(list(mine["p99_s"]))]
            lengths.plot(ends, [y, y], color=colour, linewidth=1.5)
            lengths.plot(ends[0], y, "s", color=colour, markersize=7)
            lengths.plot(1e3 * mine["p99_s"], [y] * len(mine), "o", color=colour, markersize=3.5, alpha=0.6)
    drawing.plain_log(lengths.xaxis)
    lengths.set_yticks(range(len(shares)), [f"{share:.0%}" for share in shares])
    lengths.set_ylim(len(shares) - 0.5, -0.5)
    lengths.grid(visible=False, axis="y")
    lost.set(
        xlabel="round", ylabel="missing of gradients (%)", title=f"Missing with {shown:.0%} burst loss", ylim=(0, None)
    )
    seconds.set(xlabel="time (s)", ylabel="accuracy (%)", title=f"Accuracy with {shown:.0%} burst loss")
    lengths.set(xlabel="time of a round (ms)", ylabel="lost in bursts", title="Rounds")
    figure.legend(*lost.get_legend_handles_labels(), loc="outside upper center", ncols=2, fontsize=9)
    return figure


def _near(rows: pd.DataFrame) -> pd.DataFrame:
    """A row a training: ``burst, system, kind, seed, p99_s, near_s`` (empty: never)."""
    keys = ["burst", "system", "kind", "seed"]
    found = [
        dict(zip(keys, at, strict=True)) | {"p99_s": mine["p99_s"].iloc[0], "near_s": _near_s(mine)[int(mine["seed"].iloc[0])]}
        for at, mine in rows.groupby(keys, sort=False)
    ]  # fmt: skip
    return pd.DataFrame(found)


def _near_s(rows: pd.DataFrame) -> dict[int, float | None]:
    """By seed: when a training first was near the last accuracy of the one with nothing missing; None: never."""
    found: dict[int, float | None] = {}
    for seed, mine in rows.groupby("seed"):
        there = mine[mine["accuracy"] >= NEAR * mine["whole"]]
        found[int(str(seed))] = float(there["end_s"].min()) if len(there) else None
    return found


def _table(study: Study) -> pd.DataFrame:
    """``burst, system, kind, role, seed, round, end_s, accuracy, whole, missing, mean_s, p99_s``; raises `LoadError` where nothing fits."""
    runs = [run for run in study.runs if trainings.model(run)]
    curves = [trainings.learnt(run) for run in runs]
    whole = {
        (_burst(run), run.seed): float(curve["accuracy"].iloc[-1])
        for run, curve in zip(runs, curves, strict=True)
        if run.jobs[0].by_tcp
    }
    both = [(run, curve) for run, curve in zip(runs, curves, strict=True) if (_burst(run), run.seed) in whole]
    if len({_kind(run) for run, _ in both}) < 2:
        raise LoadError(f"{ID}: there are no trainings over MLT and others; run experiments/{ID}.toml")
    return pd.concat([_rows(run, curve, whole[_burst(run), run.seed]) for run, curve in both], ignore_index=True)


def _burst(run: Run) -> float:
    """Which share of the packets is lost within bursts."""
    return max((wire.loss for wire in run.plan.wires.values()), default=0.0)


def _kind(run: Run) -> str:
    if run.jobs[0].by_tcp:
        return "reliable"
    return "phase" if trainings.follows(run) else "constant"


def _rows(run: Run, curve: pd.DataFrame, whole: float) -> pd.DataFrame:
    times = np.diff(run.iterations.groupby("iteration")["end_s"].max().to_numpy())
    return curve.assign(
        burst=_burst(run), system=run.system, kind=_kind(run), role=run.role, seed=run.seed, whole=whole, mean_s=float(times.mean()),
        p99_s=float(np.percentile(times, 99)),
    )  # fmt: skip

"""Replicas that train in a ring over links that drop packets: their divergence, and its cost."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd

from testbed.core import system_text
from testbed.core.runs.load import LoadError, Run
from testbed.report import drawing, style, trainings
from testbed.report.study import Study

ID = "mlt-ring"
POSITION = 340
TITLE = "In a ring that loses, replicas that copy parameters stay together; the cost in rounds is undecided"
TEXT = (
    "Four replicas of a small model train over the emulated network, closed loop, their gradients summed up in a ring whose links lose packets. Left: accuracy "
    "of the first, by round. Middle: how far apart replicas are. Right: when the first was at 90 % of the last accuracy with nothing missing (dots: seeds)."
)


def draw(study: Study, out: Path) -> list[Path]:
    """Write ``mlt-ring.{png,pdf,csv}``; the data: a row per training and look."""
    rows = _table(study)
    figure, axes = style.new_figure(1, 3, figsize=(14, 4.4), width_ratios=[1, 1, 0.8])
    curves, distances, times = axes[0]
    names = list(dict.fromkeys(rows["system"]))
    for y, (name, colour) in enumerate(zip(names, style.JOBS, strict=False)):
        mine = rows[rows["system"] == name]
        means = mine.groupby("round")["accuracy"].mean()
        curves.plot(means.index, 100 * means, color=colour, label=name)
        runs = [run for run in study.runs if run.system == name and not trainings.replica_divergence(run).empty]
        if runs:
            apart = pd.concat([trainings.replica_divergence(run) for run in runs], axis="columns").mean(axis="columns")
            distances.plot(apart.index, 100 * apart, color=colour)
        of_seeds = mine.drop_duplicates("seed")
        never = int(of_seeds["rounds"].isna().sum())
        times.barh(y, of_seeds["time_s"].mean(), height=0.5, color=colour)
        times.plot(of_seeds["time_s"], [y] * len(of_seeds), "o", color="black", markersize=3)
        times.annotate(
            f"{of_seeds['missing'].mean():.1%} missing" + (f", {never} of {len(of_seeds)} never there" if never else ""),
            (0, y - 0.38), textcoords="offset points", xytext=(3, 0), fontsize=8,
        )  # fmt: skip
    curves.set(xlabel="round", ylabel="accuracy (%)", title="Accuracy")
    distances.set(xlabel="round", ylabel="max‖θi − θj‖ ÷ ‖θ‖ (%)", title="Replicas", ylim=(0, None))
    times.set_yticks(range(len(names)), [""] * len(names))
    times.set_ylim(len(names) - 0.5, -0.6)
    times.grid(visible=False, axis="y")
    times.set(xlabel="time to the accuracy (s)", title="Time")
    figure.legend(*curves.get_legend_handles_labels(), loc="outside upper center", ncols=4, fontsize=9)
    one = study.runs[0]
    drawing.caption(
        figure,
        f"{drawing.count(len(one.jobs[0].hosts), 'worker')} in a ring, {drawing.setting(one)}; {drawing.count(rows['seed'].nunique(), 'seed')}.",
        f"{trainings.described(one)}; what is missing of a sum is zero.",
    )
    return drawing.save(figure, rows, out, ID)


def _table(study: Study) -> pd.DataFrame:
    """``system, role, seed, round, accuracy``, and of the whole training ``missing, rounds, ratio, time_s, replica_divergence``; raises `LoadError` where nothing fits."""
    runs = [run for run in study.runs if trainings.model(run)]
    curves = [trainings.learnt(run) for run in runs]
    whole = {
        run.seed: curve["accuracy"].to_numpy() for run, curve in zip(runs, curves, strict=True) if run.jobs[0].by_tcp
    }
    found = [_rows(run, curve, whole[run.seed]) for run, curve in zip(runs, curves, strict=True) if run.seed in whole]
    if len({(run.system) for run in runs}) < 2 or not found:
        raise LoadError(f"{ID}: there are no trainings over MLT and others; run experiments/{ID}.toml")
    every = pd.concat(found, ignore_index=True)
    return every.assign(first=every["round"] == every["round"].min())


def _rows(run: Run, curve: pd.DataFrame, whole: np.ndarray) -> pd.DataFrame:
    limit = trainings.NEAR * float(trainings.accuracy(whole)[-1])
    rounds = trainings.reached(curve["accuracy"].to_numpy(), limit)
    return curve[["round", "accuracy"]].assign(
        system=run.system, variant=_variant(run), role=run.role, seed=run.seed, missing=float(curve["missing"].mean()), rounds=rounds,
        ratio=rounds / trainings.reached(whole, limit),
        time_s=float(np.interp(rounds, curve["round"], curve["end_s"], right=np.nan)), replica_divergence=float(trainings.replica_divergence(run).mean()),
    )  # fmt: skip


def _variant(run: Run) -> str:
    """The missing data of a ring, and whether replicas copy each other: the columns of its claims."""
    if run.jobs[0].by_tcp:
        return "reliable"
    options = dict(system_text.part(run.jobs[0].transport).options)
    return (
        "whole"
        if options.get("parameters") == "whole"
        else "resync"
        if {"resync", "sync_every"} & options.keys()
        else "published"
    )

"""What holes in gradients cost a training: accuracy by round and by second, with exactly what the network lost."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from testbed.core import builtin_transport
from testbed.core.runs.load import LoadError, Run
from testbed.models import learning
from testbed.report import drawing, phases, style, trainings
from testbed.report.study import Study

ID = "ltp-accuracy"
POSITION = 250
TITLE = "What missing gradients cost in accuracy"
TEXT = (
    "Small models learn over the emulated network, closed loop: what a packet that is lost held is missing of the sum, and what is learnt next follows from that. "
    "A row a model. Left: accuracy by round; what differs there is lost data alone. Then by second, where a faster transport is ahead, and what a mean round is made of: "
    "computing, the gather, the broadcast. Right: accuracy after the last round less that of the same training with nothing missing; within the dashed lines it is within 1 %. Three ways to fill a hole: zeros (as "
    "published), the mean of the workers that delivered, or each worker adds to its next gradient what was lost; and zeros where gradients travel dispersed (a Hadamard transform)."
)
WITHIN = 0.01  # of accuracy
NEAR = 0.95
MORE = ("#8C564B", "#9467BD", "#7F7F00")  # colours beside those of jobs
WHOLE = "nothing missing"


def draw(study: Study, out: Path) -> list[Path]:
    """Write ``ltp-accuracy.{png,pdf,csv}``; the data: a row per training and look at its accuracy, with the means of its rounds."""
    table = _table(study)
    rounds_of = _rounds(study, table)
    kinds = list(dict.fromkeys(table["training"]))
    colours = dict(zip(kinds, (*style.JOBS, *MORE), strict=False))
    models = list(dict.fromkeys(table["model"]))
    figure, axes = style.new_figure(
        len(models), 4, figsize=(19, 1.2 + 3.5 * len(models)), width_ratios=[1, 1, 1.15, 0.8]
    )
    for number, model in enumerate(models):
        rows = table[table["model"] == model]
        rounds, seconds, parts, last = axes[number]
        for kind in dict.fromkeys(rows["training"]):
            mine = rows[rows["training"] == kind].groupby("round")["accuracy"]
            rounds.plot(mine.mean().index, 100 * mine.mean(), color=colours[kind], label=kind)
            rounds.fill_between(
                mine.mean().index, 100 * mine.min(), 100 * mine.max(), color=colours[kind], alpha=0.12, linewidth=0
            )
        systems = list(dict.fromkeys(rows["system"]))
        for system, cell in rows[rows["fill"].isin(["", learning.FILLS[0]])].groupby("system", sort=False):
            mean = cell.groupby("round")[["end_s", "accuracy"]].mean()
            kind = str(cell["training"].iloc[0])
            dashes = "-" if kind != WHOLE else (0, (4, 1 + 2 * systems.index(str(system))))
            seconds.plot(
                mean["end_s"], 100 * mean["accuracy"], color=colours[kind], linestyle=dashes, label=str(system)
            )
        phases.bars(parts, rounds_of[rounds_of["model"] == model])
        _differences(last, rows, colours)
        rounds.set(ylabel=f"{learning.title(model)}\naccuracy (%)")
        seconds.set(ylabel="accuracy (%)")
        if number == 0:
            rounds.set(title="By round")
            seconds.set(title="By time, holes as zeros")
            parts.set(title="A mean round, holes as zeros")
            last.set(title="Last accuracy, less that\nwith nothing missing")
            seconds.legend(fontsize=8.5, loc="lower right")
    for axis, label in zip(axes[-1], ("round", "time (s)", "ms", "percentage points"), strict=True):
        axis.set(xlabel=label)
    phases.label(axes[-1, 2])
    axes[-1, 2].legend(fontsize=8.5, loc="upper center", bbox_to_anchor=(0.5, -0.14), ncols=3)
    figure.legend(*_every_label(axes[:, 0]), loc="outside upper center", ncols=4, fontsize=9)
    one = study.runs[0]
    drawing.caption(
        figure,
        f"{drawing.count(len(one.jobs[0].hosts) - 1, 'worker')} and a server, {drawing.setting(one)}; {drawing.count(table['seed'].nunique(), 'seed')} (bands: all of them; dots).",
        "; ".join(f"{model}: {learning.task(model).parameters:,} numbers" for model in models)
        + f"; {learning.task(models[0]).batch} examples a worker and round. The gather ends when LTP's last gradients are there; TCP's, by samples "
        f"every {one.plan.sample_ns / 1e6:g} ms.",
    )
    means = rounds_of.set_index(["model", "system", "seed"])[list(phases.COLOURS)]
    rows = table.assign(own=table["system"] == phases.lossy(study), last=table["round"] == table["round"].max())
    written = drawing.save(figure, rows.join(means, on=["model", "system", "seed"]), out, ID)
    return [*written, *drawing.write_tables({f"{ID}-near": _near(rows)}, out)]


def _rounds(study: Study, table: pd.DataFrame) -> pd.DataFrame:
    """A row a training with holes as zeros, or none, with the means of its rounds (`phases.table`)."""
    rows = phases.table(study)
    rows["model"] = [trainings.model(study.runs[place]) for place in rows.index]
    rows["fill"] = [trainings.fill(study.runs[place]) for place in rows.index]
    mine = rows[rows["model"].isin(table["model"]) & (rows["fill"] == learning.FILLS[0])]
    return mine.sort_values("stock", ascending=False, kind="stable")  # what others are compared with first


def _every_label(axes: Any) -> tuple[list[Any], list[str]]:
    """Each once, of all axes."""
    found = {label: handle for axis in axes for handle, label in zip(*axis.get_legend_handles_labels(), strict=True)}
    return list(found.values()), list(found)


def _near(rows: pd.DataFrame) -> pd.DataFrame:
    """Of trainings with holes as zeros, or none: after how many rounds and seconds each first was near the last accuracy of the one with
    nothing missing (empty: never)."""
    found = []
    keys = ["model", "system", "stock", "own", "seed"]
    for at, mine in rows[rows["fill"].isin(["", learning.FILLS[0]])].groupby(keys, sort=False):
        there = mine[mine["accuracy"] >= NEAR * mine["whole"]].sort_values("round")
        first = (there["round"].iloc[0], there["end_s"].iloc[0]) if len(there) else (np.nan, np.nan)
        found.append(dict(zip((*keys, "round", "near_s"), (*at, *first), strict=True)))
    return pd.DataFrame(found)


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


def _table(study: Study) -> pd.DataFrame:
    """``model, system, stock, fill, training, seed, round, end_s, accuracy, missing, whole, delivered``: ``whole`` is the last accuracy with
    nothing missing, of the same model and seed."""
    runs = [run for run in study.runs if trainings.model(run)]
    curves = [trainings.learnt(run) for run in runs]
    whole = {
        (trainings.model(run), run.seed): float(curve["accuracy"].iloc[-1])
        for run, curve in zip(runs, curves, strict=True)
        if not trainings.loses(run)
    }
    both = [(run, curve) for run, curve in zip(runs, curves, strict=True) if (trainings.model(run), run.seed) in whole]
    if not any(trainings.loses(run) for run, _ in both):
        raise LoadError(
            f"{ID}: there are no trainings with gradients missing beside those with none; run experiments/{ID}.toml"
        )
    return pd.concat([_rows(run, curve, whole) for run, curve in both], ignore_index=True)


def _rows(run: Run, curve: pd.DataFrame, whole: dict[tuple[str, int], float]) -> pd.DataFrame:
    fill = trainings.fill(run) if trainings.loses(run) else ""
    return curve.assign(
        model=trainings.model(run), system=run.system, stock=run.role == "baseline" and builtin_transport.plain(run.jobs[0].transport), fill=fill, training=f"{run.system}, {fill}" if fill else WHOLE,
        seed=run.seed, whole=whole[trainings.model(run), run.seed], delivered=phases.delivered(run),
    )  # fmt: skip

"""The cost of missing ranges in gradients to a training: accuracy by round and by second, with exactly the network's losses."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from testbed.core import builtin_transport
from testbed.core.runs.load import LoadError, Run
from testbed.models import learning
from testbed.report import drawing, phases, redrawing, style, trainings
from testbed.report.figures import Tables
from testbed.report.study import Study

ID = "ltp-accuracy"
POSITION = 250
TITLE = "Zeros for LTP's missing gradients cost 0.6 to 2 points of accuracy, less than TCP that sends less"
TEXT = (
    "Two small models learn over the emulated network, a row each. Left: accuracy by round. Middle: by time, missing ranges as zeros. "
    "Right: last accuracy less that of the same training with nothing missing, 95 % intervals; dashed: within 1 %. Missing ranges become zeros, the mean of the others, or return with the next gradient (feedback)."
)
WITHIN = 0.01  # of accuracy
NEAR = 0.95
MORE = ("#8C564B", "#9467BD", "#7F7F00")  # colours next to those of jobs
WHOLE = "nothing missing"


def draw(study: Study, out: Path) -> list[Path]:
    """Write ``ltp-accuracy.{png,pdf,csv}``; the data: a row per training and look at its accuracy, with the means of its rounds."""
    table = _table(study)
    means = _rounds(study, table).set_index(["model", "system", "seed"])[list(phases.COLOURS)]
    rows = table.assign(own=table["system"] == phases.lossy(study), last=table["round"] == table["round"].max())
    one, models = study.runs[0], list(dict.fromkeys(table["model"]))
    note = (
        f"{drawing.count(len(one.jobs[0].hosts) - 1, 'worker')} and a server, {drawing.setting(one)}; {drawing.count(table['seed'].nunique(), 'seed')} (dots). "
        + "; ".join(f"{model}: {learning.task(model).parameters:,} numbers" for model in models)
        + "."
    )
    tables = {ID: rows.join(means, on=["model", "system", "seed"]), f"{ID}-near": _near(rows)}
    return redrawing.publish(plot, tables, note, out)


def plot(tables: Tables) -> Any:
    """A row a model: accuracy by round and by time, and how far the last is from that with nothing missing."""
    rows = tables[ID].assign(fill=tables[ID]["fill"].fillna(""))
    kinds = [kind for kind in dict.fromkeys(rows["training"]) if kind != WHOLE]
    colours = {WHOLE: "black"} | dict(zip(kinds, (*style.JOBS[:6], style.JOBS[7], *MORE), strict=False))
    models = list(dict.fromkeys(rows["model"]))
    figure, axes = style.new_figure(len(models), 3, figsize=(12.5, 0.9 + 3.7 * len(models)), sharex="col")
    for (rounds, seconds, last), model in zip(axes, models, strict=True):
        mine = rows[rows["model"] == model]
        for kind, cell in mine.groupby("training", sort=False):
            line = 100 * cell.groupby("round")["accuracy"].mean()
            rounds.plot(line.index, line, color=colours[str(kind)], linewidth=1.3)
        zeros = mine[mine["fill"].isin(["", learning.FILLS[0]])]
        for place, (system, cell) in enumerate(zeros.groupby("system", sort=False)):
            kind = str(cell["training"].iloc[0])
            mean = cell.groupby("round")[["end_s", "accuracy"]].mean()
            dashes = "-" if kind != WHOLE else (0, (4, 1 + 2 * place))
            label = str(system) if kind == WHOLE else None
            seconds.plot(
                mean["end_s"], 100 * mean["accuracy"], color=colours[kind], linestyle=dashes, linewidth=1.3, label=label
            )
        _differences(last, mine, kinds, colours)
        rounds.set_ylabel(f"{learning.title(model)}\naccuracy (%)")
        seconds.legend(fontsize=8, title="nothing missing", title_fontsize=8, loc="lower right")
    for axis, title, label in zip(
        axes[0], ("By round", "By time", "Cost at the end"), ("round", "time (s)", "percentage points"), strict=True
    ):
        axis.set_title(title)
        axes[-1, list(axes[0]).index(axis)].set_xlabel(label)
    return figure


def _rounds(study: Study, table: pd.DataFrame) -> pd.DataFrame:
    """A row per training with missing ranges as zeros, or without any, with the means of its rounds (`phases.table`)."""
    rows = phases.table(study)
    rows["model"] = [trainings.model(study.runs[place]) for place in rows.index]
    rows["fill"] = [trainings.fill(study.runs[place]) for place in rows.index]
    mine = rows[rows["model"].isin(table["model"]) & (rows["fill"] == learning.FILLS[0])]
    return mine.sort_values("stock", ascending=False, kind="stable")  # what others are compared with first


def _near(rows: pd.DataFrame) -> pd.DataFrame:
    """Of trainings with missing ranges as zeros, or none: after how many rounds and seconds each first was near the last accuracy of the one with
    nothing missing (empty: never)."""
    found = []
    keys = ["model", "system", "stock", "own", "seed"]
    for at, mine in rows[rows["fill"].isin(["", learning.FILLS[0]])].groupby(keys, sort=False):
        there = mine[mine["accuracy"] >= NEAR * mine["whole"]].sort_values("round")
        first = (there["round"].iloc[0], there["end_s"].iloc[0]) if len(there) else (np.nan, np.nan)
        found.append(dict(zip((*keys, "round", "near_s"), (*at, *first), strict=True)))
    return pd.DataFrame(found)


def _differences(axis: Any, rows: pd.DataFrame, kinds: list[str], colours: dict[str, str]) -> None:
    """A row a training that loses."""
    end = rows[(rows["round"] == rows["round"].max()) & (rows["fill"] != "")]
    for y, kind in enumerate(kinds):
        mine = end[end["training"] == kind]
        drawing.across(axis, y, list(100 * (mine["accuracy"] - mine["whole"])), colours[kind], ratios=False)
    for limit in (-100 * WITHIN, 100 * WITHIN):
        axis.axvline(limit, color=style.REFERENCE, linewidth=0.9, linestyle="--")
    axis.axvline(0, color=style.REFERENCE, linewidth=0.6)
    axis.set_yticks(range(len(kinds)), map(trainings.shown, kinds), fontsize=8)
    for label, kind in zip(axis.get_yticklabels(), kinds, strict=True):
        label.set_color(colours[kind])
    axis.yaxis.tick_right()
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
            f"{ID}: there are no trainings with gradients missing, or none with all of them; run experiments/{ID}.toml"
        )
    return pd.concat([_rows(run, curve, whole) for run, curve in both], ignore_index=True)


def _rows(run: Run, curve: pd.DataFrame, whole: dict[tuple[str, int], float]) -> pd.DataFrame:
    fill = trainings.fill(run) if trainings.loses(run) else ""
    return curve.assign(
        model=trainings.model(run), system=run.system, stock=run.role == "baseline" and builtin_transport.plain(run.jobs[0].transport), fill=fill, training=f"{run.system}, {fill}" if fill else WHOLE,
        seed=run.seed, whole=whole[trainings.model(run), run.seed], delivered=phases.delivered(run),
    )  # fmt: skip

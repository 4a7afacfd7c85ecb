"""Lose, compress or wait: time of a round × rounds to an accuracy, for transports that lose, gradients that are compressed, and TCP."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from math import isfinite
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from testbed.core import builtin_transport, system_text
from testbed.core.runs.load import LoadError, Run
from testbed.models import learning
from testbed.models.compression import Compressed, largest, rounded
from testbed.models.dispersal import Dispersed
from testbed.report import drawing, redrawing, style, trainings
from testbed.report.figures import Tables
from testbed.report.study import Study
from testbed.report.trainings import NEAR, ROUNDS, SETTLED

ID = "lossy"
POSITION = 370
TITLE = "Losing gradients beats waiting for all of them by 1.25 times, and is no better than compressing them"
TEXT = (
    "A small model learns while links lose packets at random. Left: time of a round and rounds to 90 % of the last accuracy with nothing missing; on a "
    "grey line their product is the same. Right: that product relative to the fastest TCP that waits (dashed). Dots: seeds; hollow: Hadamard transform; "
    "cross: never."
)
MARKERS = {"waits": "s", "compresses": "^", "loses": "o"}


@dataclass(frozen=True)
class Training:
    """The role of a run's network: with its missing ranges or without, and with a separate mean."""

    name: str
    kind: str
    mean: Callable[[], learning.Mean] | None = None


def draw(study: Study, out: Path) -> list[Path]:
    """Write ``lossy.{png,pdf,csv}``; the data: a row per run and training."""
    rows = _table(study)
    one, task = study.runs[0], learning.task()
    note = (
        f"{drawing.count(len(one.jobs[0].hosts), 'worker')}, {drawing.setting(one)}; {drawing.count(rows['seed'].nunique(), 'seed')} (dots), {one.jobs[0].iterations} rounds, "
        f"whose missing ranges repeat until round {ROUNDS}.\n"
        f"A perceptron of {task.parameters:,} numbers. Sums arrive complete everywhere; gradients are compressed to 12.6 % of their bytes."
    )
    return redrawing.publish(plot, {ID: rows}, note, out)


def plot(tables: Tables) -> Any:
    """Time of a round by rounds, at each minimum RTO; and the time to the accuracy."""
    rows = tables[ID]
    timeouts = sorted(rows["rto_ms"].unique(), reverse=True)
    figure, axes = style.new_figure(1, len(timeouts) + 1, figsize=(6.4 + 4.8 * len(timeouts), 4.8))
    names = dict.fromkeys(name.removesuffix(trainings.DISPERSED) for name in rows["training"])
    colours = dict(zip(names, style.JOBS, strict=False))
    for axis, rto in zip(axes[0], timeouts, strict=False):
        _plane(axis, rows[rows["rto_ms"] == rto], colours)
        axis.set_title(f"minimum RTO {rto:g} ms")
    _times(axes[0, -1], rows, colours, timeouts)
    figure.legend(*axes[0, 0].get_legend_handles_labels(), loc="outside upper center", ncols=5, fontsize=9)
    return figure


def _waiting(rows: pd.DataFrame) -> list[str]:
    return list(dict.fromkeys(rows[rows["kind"] == "waits"]["training"]))


def _fastest(rows: pd.DataFrame, names: list[str]) -> str | None:
    """Of those that reach the accuracy in every seed, by the mean."""
    times = rows[rows["training"].isin(names)].groupby("training")["time_s"].agg(lambda one: one.mean(skipna=False))
    there = times.dropna()
    return None if there.empty else str(there.idxmin())


def _plane(axis: Any, rows: pd.DataFrame, colours: dict[str, str]) -> None:
    """Time of a round by rounds, and lines of the same product."""
    for name, mine in rows.groupby("training", sort=False):
        there = mine.dropna(subset="rounds")
        axis.plot(
            1e3 * there["round_s"],
            there["rounds"],
            **_dots(mine, colours),
            markersize=6,
            label=trainings.shown(str(name)),
        )
    x = np.linspace(0.5 * 1e3 * rows["round_s"].min(), 1.2 * 1e3 * rows["round_s"].max(), 100)
    low, high = 0.8 * rows["rounds"].min(), 1.15 * rows["rounds"].max()
    if isfinite(low):
        for product in np.geomspace(x[0] * low, x[-1] * high, 9):
            axis.plot(x, product / x, color="#DDDDDD", linewidth=0.8, zorder=0)
        axis.set_ylim(low, high)
    axis.set(xlabel="time of a round (ms)", ylabel="rounds to the accuracy", xlim=(x[0], x[-1]))


def _dots(rows: pd.DataFrame, colours: dict[str, str]) -> dict[str, Any]:
    """How the dots of a training look; hollow with dispersal."""
    name, kind = rows["training"].iloc[0], rows["kind"].iloc[0]
    base = name.removesuffix(trainings.DISPERSED)
    return {
        "marker": MARKERS[kind], "color": colours[base], "linestyle": "", "markerfacecolor": colours[base] if base == name else "white",
    }  # fmt: skip


def _times(axis: Any, rows: pd.DataFrame, colours: dict[str, str], timeouts: list[float]) -> None:
    """A row a training and minimum RTO: time to the accuracy ÷ the mean of the fastest TCP that waits."""
    labels: list[str] = []
    for rto in timeouts:
        here = rows[rows["rto_ms"] == rto]
        best = _fastest(here, _waiting(here))
        base = here[here["training"] == best]["time_s"].mean()
        for name, mine in here.groupby("training", sort=False):
            y = len(labels)
            shown = trainings.shown(str(name))
            labels.append(shown if len(timeouts) == 1 else f"{shown}, {rto:g} ms")
            axis.plot(mine["time_s"] / base, [y] * len(mine), **_dots(mine, colours), markersize=5)
            if mine["time_s"].isna().any():
                axis.plot(1, y, "x", color="black", transform=axis.get_yaxis_transform(), clip_on=False)
    axis.axvline(1, color=style.REFERENCE, linewidth=0.9, linestyle="--")
    axis.set_yticks(range(len(labels)), labels, fontsize=8)
    axis.set_ylim(len(labels) - 0.5, -0.5)
    axis.set_xlim(left=0)
    axis.set(xlabel="time to the accuracy ÷ TCP's", title="Time to the accuracy")


def _table(study: Study) -> pd.DataFrame:
    """``system, training, kind, seed, rto_ms, round_s, lost, rounds, whole_rounds, time_s``; ``rounds`` is empty if the accuracy is never reached."""
    if not study.runs:
        raise LoadError(f"{ID}: there are no runs; run experiments/{ID}.toml")
    return pd.DataFrame([row for run in study.runs for row in _rows(run)])


def _rows(run: Run) -> Iterator[dict[str, Any]]:
    job = run.jobs[0]
    workers = len(job.hosts)
    ends = run.iterations.groupby("iteration")["end_s"].max().to_numpy()
    round_s = float(ends[-1] - ends[SETTLED - 1]) / (len(ends) - SETTLED)
    holes, lost = trainings.holes(run)
    whole = trainings.curve(trainings.nothing(workers), run.seed, None)
    limit = NEAR * float(trainings.accuracy(whole)[-1])
    for training in _trainings(run):
        curve = trainings.curve(
            holes if training.kind == "loses" else trainings.nothing(workers), run.seed, training.mean
        )
        rounds = trainings.reached(curve, limit)
        yield {
            "system": run.system, "training": training.name, "kind": training.kind, "seed": run.seed,
            "rto_ms": run.plan.rto_min_ms, "round_s": round_s, "lost": lost if training.kind == "loses" else 0.0,
            "rounds": rounds, "whole_rounds": trainings.reached(whole, limit), "time_s": round_s * rounds,
        }  # fmt: skip


def _trainings(run: Run) -> list[Training]:
    job = run.jobs[0]
    name = system_text.name_of(job.transport)
    if builtin_transport.plain(job.transport):
        return [Training(f"{run.system} waits", "waits")]
    if job.by_tcp:  # a share of the bytes
        return [
            Training(f"top-k over {job.cc.spec}", "compresses", _largest),
            Training(f"4 bit over {job.cc.spec}", "compresses", _rounded),
        ]
    return [Training(name, "loses"), Training(f"{name}{trainings.DISPERSED}", "loses", Dispersed)]


def _largest() -> learning.Mean:
    return Compressed(largest)


def _rounded() -> learning.Mean:
    return Compressed(rounded)

"""The choice of lost packets matters more than their number: rounds to an accuracy with packets missing at random, or the least important ones."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from testbed.core.runs.load import LoadError, Run
from testbed.models import gradient_masks, learning
from testbed.report import drawing, phases, redrawing, style, trainings
from testbed.report.figures import Tables
from testbed.report.study import Study

ID = "mlt-accuracy"
POSITION = 320
TITLE = "MLT's lost gradients cost 0 to 31 % more rounds; lost parameters keep trainings from their accuracy"
TEXT = (
    "A small model learns to read letters; rounds to 90 % of the last accuracy that it has with nothing missing, relative to those. Above left: losses drawn, from all packets or from "
    "the less important half; grey: published. Above right: a ring whose replicas diverge. Below: trained over MLT in the emulated network; dots are seeds, 95 % intervals."
)
AT_RANDOM, AS_PUBLISHED, WHOLE = "tag=random", "tag=element-median", "parameters=whole"
SHARES = (0.01, 0.05, 0.1, 0.2, 0.3)
RULES = {"random": gradient_masks.anywhere, "selective": gradient_masks.unimportant}
# Rounds at 0, 2, 5 and 10 % of random loss (published figure, values read from the drawing).
PUBLISHED = {"LSTM": (62, 71, 81, 93), "ResNet50": (47, 47, 63, 77)}
AT = (0.0, 0.02, 0.05, 0.1)
LABELS = {"random": "any packet", "selective": "less important half"}
RING_LOSS = 0.05
RINGS = (
    (True, 0),
    (True, 50),
    (True, 10),
    (False, 0),
)  # whether the all-gather loses, too; rounds between two copies of a replica


@dataclass(frozen=True)
class _Loss:
    """A share that is missing by one of the `RULES`; called, a mean for a training (so that two alike are computed once)."""

    rule: str
    share: float
    seed: int

    def __call__(self) -> learning.Mean:
        return gradient_masks.Dropped(self.share, RULES[self.rule], self.seed, of_all=True)


def draw(study: Study, out: Path) -> list[Path]:
    """Write ``mlt-accuracy.{png,pdf,csv}``; the data: a row per seed and training, then one for each ring (``replica_divergence``: over the rounds, in the mean)."""
    rows = _table(study)
    one, task = study.runs[0], learning.task()
    rings = _rings(one.seed, len(one.jobs[0].hosts) - 1)
    note = (
        f"{drawing.count(len(one.jobs[0].hosts) - 1, 'worker')}, {drawing.setting(one)}; {drawing.count(rows['seed'].nunique(), 'seed')}. "
        f"A perceptron of {task.parameters:,} numbers, {drawing.count(-(-task.bytes // gradient_masks.PACKET_BYTES), 'packet')}; missing ranges are zeros."
    )
    return redrawing.publish(plot, {ID: _marked(pd.concat([rows, rings]), phases.lossy(study))}, note, out)


def plot(tables: Tables) -> Any:
    """Losses that are drawn, a ring, and below what was trained over the emulated network: rounds and time."""
    rows = tables[ID]
    names = list(
        rows.dropna(subset="named")
        .groupby("named")[["switch", "missing"]]
        .mean()
        .sort_values(["switch", "missing"])
        .index
    )
    figure, axes = style.new_figure(
        2, 2, figsize=(12, 5.2 + 0.3 * len(names)), height_ratios=[3.6, 1 + 0.3 * len(names)]
    )
    (lines, ring), (rounds, times) = axes
    _drawn_losses(lines, rows)
    _diverged(ring, rows[rows["training"].str.startswith("ring")])
    rounds.sharey(times)
    for y, name in enumerate(names):
        mine = rows[rows["named"] == name]
        colour = style.JOBS[1 if not mine["missing"].any() else 2 if mine["variant"].iloc[0] == "random" else 0]
        drawing.across(rounds, y, list(mine["ratio"].dropna()), colour)
        drawing.across(times, y, list(mine["time_s"].dropna()), colour, ratios=False)
        if never := int(mine["time_s"].isna().sum()):
            times.text(
                0.99,
                y,
                f"{never} of {len(mine)} never",
                transform=times.get_yaxis_transform(),
                ha="right",
                va="center",
                fontsize=8,
            )
    missing = rows.groupby("named")["missing"].mean()
    rounds.set_yticks(
        range(len(names)), [f"{trainings.shown(name)} ({missing[name]:.0%})" for name in names], fontsize=8
    )
    times.tick_params(labelleft=False)
    rounds.set_ylim(len(names) - 0.5, -0.5)
    rounds.axvline(1, color="black", linewidth=0.8)
    rounds.set(xlabel="rounds ÷ nothing missing", title="Over the network: rounds (missing packets)")
    times.set(xlabel="time to the accuracy (s)", title="Over the network: time")
    for axis in (rounds, times):
        axis.grid(visible=False, axis="y")
    return figure


def _drawn_losses(axis: Any, rows: pd.DataFrame) -> None:
    for name, values in PUBLISHED.items():
        axis.plot([100 * at for at in AT], [value / values[0] for value in values], color="#AAAAAA", linewidth=1.2)
        end = 100 * AT[-1], values[-1] / values[0]
        axis.annotate(name, end, textcoords="offset points", xytext=(5, -3), fontsize=8, color="#777777")
    for rule, colour, marker in zip(RULES, style.JOBS, "os", strict=False):
        mine = rows[rows["training"] == rule]
        drawing.trend(
            axis,
            mine.assign(missing=100 * mine["missing"]),
            "missing",
            "ratio",
            colour,
            label=LABELS[rule],
            marker=marker,
        )
    axis.axhline(1, color="black", linewidth=0.8)
    axis.set(xlabel="missing (% of packets)", ylabel="rounds ÷ nothing missing", title="Random losses")
    axis.legend(fontsize=9)


def _diverged(axis: Any, rings: pd.DataFrame) -> None:
    """The last accuracy of a ring over its replica divergence."""
    for (_, one), marker in zip(rings.iterrows(), "oD^sv", strict=False):
        axis.plot(
            100 * one["replica_divergence"],
            100 * one["accuracy"],
            marker,
            color=style.JOBS[0],
            markersize=7,
            label=str(one["training"]).removeprefix("ring, ").replace("whole", "complete"),
        )
    axis.set(
        xlabel="mean replica divergence (%)",
        ylabel="last accuracy (%)",
        title=f"Ring with {RING_LOSS:.0%} loss per hop, 1 seed",
    )
    axis.legend(fontsize=8)


def _marked(rows: pd.DataFrame, own: str) -> pd.DataFrame:
    """The rows with the columns of claims: a training's name without the suffix of its variant (``plain``, ``variant``), whether it is
    MLT with its defaults over links that drop packets (``own``), or that with parameters that arrive (``whole_parameters``)."""
    names = rows["training"].astype(str)
    variants = {f",{AT_RANDOM}": "random", f",{AS_PUBLISHED}": "published", trainings.DISPERSED: "dispersed"}
    ends = [next((end for end in variants if name.endswith(end)), "") for name in names]
    switch = rows["switch"].fillna(value=False).astype(bool)
    return rows.assign(
        switch=switch, plain=[name.removesuffix(end) for name, end in zip(names, ends, strict=True)],
        variant=[variants.get(end, "usual") for end in ends], own=~switch & (names == own), whole_parameters=~switch & names.str.endswith(f":{WHOLE}"),
    )  # fmt: skip


def _named(run: Run) -> str:
    """Its system without what all have, and what loses there."""
    told = run.system
    for usual in ("parameters=whole", ",bands=1+drop,rate=dctcp,first=10"):
        told = told.replace(usual, "")
    lossy = not run.jobs[0].by_tcp and "parameters=whole" not in run.system
    return (
        told.replace(":,", ":").rstrip(":,")
        + ", parameters lossy" * lossy
        + trainings.dispersed(run)
        + (", switch drops" if switched(run) else ", links lose")
    )


def _rings(seed: int, ranks: int) -> pd.DataFrame:
    """The replica divergence of a ring, and the accuracy, by the number of rounds between two copies of one."""
    rows = []
    for gathers, resync in RINGS:
        found = trainings.in_a_ring(RING_LOSS, resync, seed, ranks, gathers=gathers)
        reaches = float(trainings.accuracy(found.accuracy)[-1])
        how = "all-gather whole" if not gathers else f"copied every {resync} rounds" if resync else "never copied"
        rows.append({
            "training": f"ring, {how}", "seed": seed, "missing": RING_LOSS, "rounds": len(found.replica_divergence), "replica_divergence": found.replica_divergence.mean(), "accuracy": reaches,
        })  # fmt: skip
    return pd.DataFrame(rows)


def _table(study: Study) -> pd.DataFrame:
    """``training, named, switch, seed, missing, ratio, rounds, time_s, replica_divergence, change``: drawn losses by rule and share, then every emulated system."""
    if not study.runs:
        raise LoadError(f"{ID}: there are no runs; run experiments/{ID}.toml")
    workers = {run.seed: len(run.jobs[0].hosts) - 1 for run in study.runs}
    drawn = [row for seed, count in workers.items() for row in _drawn(seed, count)]
    return pd.DataFrame([*drawn, *_emulated(study)])


def _drawn(seed: int, workers: int) -> Iterator[dict[str, Any]]:
    whole, limit = trainings.whole(seed, workers)
    for rule in RULES:
        for share in SHARES:
            rounds = trainings.rounds(trainings.nothing(workers), seed, limit, _Loss(rule, share, seed))
            yield {
                "training": rule,
                "switch": False,
                "seed": seed,
                "missing": share,
                "ratio": rounds / whole,
                "rounds": rounds,
                "time_s": np.nan,
            }


def switched(run: Run) -> bool:
    """Whether its links lose nothing by themselves."""
    return not any(wire.loss for wire in run.plan.wires.values())


def _emulated(study: Study) -> list[dict[str, Any]]:
    """Of every training that took place over the emulated network: rounds and time to 90 % of the last accuracy with nothing missing, and by how much
    its own last accuracy differs from that (``change``)."""
    runs = [run for run in study.runs if trainings.model(run)]
    curves = [trainings.learnt(run) for run in runs]
    whole = {
        (run.seed, switched(run)): curve["accuracy"].to_numpy()
        for run, curve in zip(runs, curves, strict=True)
        if not trainings.loses(run)
    }
    found = []
    for run, curve in zip(runs, curves, strict=True):
        at = run.seed, switched(run)
        if at not in whole:
            continue
        best = float(trainings.accuracy(whole[at])[-1])
        limit = trainings.NEAR * best
        rounds = trainings.reached(curve["accuracy"].to_numpy(), limit)
        found.append({
            "training": run.system + trainings.dispersed(run), "named": _named(run), "switch": switched(run), "seed": run.seed, "missing": float(curve["missing"].mean()), "rounds": rounds,
            "ratio": rounds / trainings.reached(whole[at], limit), "time_s": float(np.interp(rounds, curve["round"], curve["end_s"], right=np.nan)),
            "replica_divergence": float(trainings.replica_divergence(run).mean()), "change": float(trainings.accuracy(curve["accuracy"].to_numpy())[-1]) - best,
        })  # fmt: skip
    return found

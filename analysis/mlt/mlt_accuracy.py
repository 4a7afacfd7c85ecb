"""What is lost matters more than how much: rounds to an accuracy with packets missing at random, or those that matter least."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from testbed.core.runs.load import LoadError, Run
from testbed.models import gradient_masks, learning
from testbed.report import drawing, phases, style, trainings
from testbed.report.study import Study

ID = "mlt-accuracy"
POSITION = 320
TITLE = "What MLT's lost gradients cost"
TEXT = (
    "A small model learns to read letters. Left: rounds to 90 % of the accuracy that nothing missing gives after 300 rounds, ÷ those with nothing missing, "
    "over the share of packets that is missing, in every round anew: drawn from all (random), or from the half of each gradient whose numbers are smallest "
    "(selective: what MLT lets switches drop). Squares: a small network that learns over MLT in the emulated network, closed loop, where links lose, or "
    "a switch drops by the magnitudes of its own gradients. Grey: as published, random loss. Middle: when those that learnt there came to the accuracy. Right: in a ring a packet that is lost on the second half of its way leaves replicas apart, drawn, "
    "with 5 % of the packets of every hop missing; black, if it was run: workers that pull parameters from a server, some of which may be missing, emulated."
)
AT_RANDOM, AS_PUBLISHED, WHOLE = "tag=random", "tag=element-median", "parameters=whole"
SHARES = (0.01, 0.05, 0.1, 0.2, 0.3)
RULES = {"random": gradient_masks.anywhere, "selective": gradient_masks.unimportant}
# Rounds at 0, 2, 5 and 10 % of random loss (published figure, values read from the drawing).
PUBLISHED = {"LSTM": (62, 71, 81, 93), "ResNet50": (47, 47, 63, 77)}
AT = (0.0, 0.02, 0.05, 0.1)
RING_LOSS = 0.05
RINGS = (
    (True, 0),
    (True, 50),
    (True, 10),
    (False, 0),
)  # whether the all-gather loses, too; rounds between two copies of a replica
DASHES = ("-", "--", ":")


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
    figure, axes = style.new_figure(1, 3, figsize=(15, 5.2), width_ratios=[1.4, 1, 1])
    lines, times, apart = axes[0]
    for name, values in PUBLISHED.items():
        lines.plot([100 * at for at in AT], [value / values[0] for value in values], color="#BBBBBB", linewidth=1.2)
        lines.annotate(
            name,
            (100 * AT[-1], values[-1] / values[0]),
            textcoords="offset points",
            xytext=(5, -3),
            fontsize=8,
            color="#888888",
        )
    for colour, rule in zip(style.JOBS, RULES, strict=False):
        mine = rows[rows["training"] == rule]
        means = mine.groupby("missing")["ratio"].mean()
        lines.plot([0, *100 * means.index], [1, *means], color=colour, label=rule)
        lines.plot(100 * mine["missing"], mine["ratio"], "o", color=colour, markersize=3)
    emulated = rows[~rows["training"].isin(RULES)]
    holed = emulated[emulated["missing"] > 0]
    mixed = holed["training"].str.endswith(trainings.DISPERSED)
    for mine, face, label in ((holed[~mixed], "black", "MLT, emulated"), (holed[mixed], "none", "the same, dispersed")):
        lines.plot(
            100 * mine["missing"], mine["ratio"], "s",
            color="black", markerfacecolor=face, markersize=4, linestyle="", label=label,
        )  # fmt: skip
    lines.set(xlabel="missing (% of packets)", ylabel="rounds ÷ those with nothing missing", title="Rounds")
    lines.legend(fontsize=9, loc="upper left")
    _times(times, emulated)
    rings = _rings(apart, study.runs[0].seed, len(study.runs[0].jobs[0].hosts) - 1)
    _served(apart, study)
    one, task = study.runs[0], learning.task()
    drawing.caption(
        figure,
        f"{drawing.count(len(one.jobs[0].hosts) - 1, 'worker')}, {drawing.setting(one)}; {drawing.count(rows['seed'].nunique(), 'seed')} (dots). "
        f"A perceptron of {task.parameters:,} numbers, {drawing.count(-(-task.bytes // gradient_masks.PACKET_BYTES), 'packet')}; holes are zeros.",
    )
    return drawing.save(figure, _marked(pd.concat([rows, rings]), phases.lossy(study)), out, ID)


def _marked(rows: pd.DataFrame, own: str) -> pd.DataFrame:
    """With what claims ask for: a training's name without what makes it another one of the same (``plain``, ``variant``), whether it is
    MLT as it is by default over links that lose (``own``), or that with parameters that arrive (``whole_parameters``)."""
    names = rows["training"].astype(str)
    variants = {f",{AT_RANDOM}": "random", f",{AS_PUBLISHED}": "published", trainings.DISPERSED: "dispersed"}
    ends = [next((end for end in variants if name.endswith(end)), "") for name in names]
    switch = rows["switch"].fillna(value=False).astype(bool)
    return rows.assign(
        switch=switch, plain=[name.removesuffix(end) for name, end in zip(names, ends, strict=True)],
        variant=[variants.get(end, "usual") for end in ends], own=~switch & (names == own), whole_parameters=~switch & names.str.endswith(f":{WHOLE}"),
    )  # fmt: skip


def _times(axis: Any, rows: pd.DataFrame) -> None:
    """A bar a system that was emulated: time to the accuracy; where links lose first, and the more is missing the lower."""
    kinds = list(rows.groupby("named")[["switch", "missing"]].mean().sort_values(["switch", "missing"]).index)
    for y, kind in enumerate(kinds):
        mine = rows[rows["named"] == kind]
        axis.barh(y, mine["time_s"].mean(), height=0.5, color=style.JOBS[0 if mine["missing"].any() else 1])
        axis.plot(mine["time_s"], [y] * len(mine), "o", color="black", markersize=3)
        never = int(mine["time_s"].isna().sum())
        said = f"{mine['missing'].mean():.1%} missing" + (
            f", {never} of {drawing.count(len(mine), 'seed')} never there" if never else ""
        )
        axis.annotate(
            said,
            (0, y),
            textcoords="offset points",
            xytext=(4, -3),
            fontsize=8,
            color="black" if never == len(mine) else "white",
        )
    axis.set_yticks(range(len(kinds)), kinds, fontsize=7.5)
    axis.set_ylim(len(kinds) - 0.5, -0.5)
    axis.set(xlabel="time to the accuracy (s)", title="Time, closed loop")
    axis.grid(visible=False, axis="y")


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


def _rings(axis: Any, seed: int, ranks: int) -> pd.DataFrame:
    """How far apart replicas are, a line for each number of rounds between two copies of one; their rows of the data."""
    rows = []
    for colour, (gathers, resync) in zip(style.JOBS, RINGS, strict=False):
        found = trainings.in_a_ring(RING_LOSS, resync, seed, ranks, gathers=gathers)
        reaches = float(trainings.accuracy(found.accuracy)[-1])
        how = "all-gather whole" if not gathers else f"copied every {resync} rounds" if resync else "never copied"
        axis.plot(100 * found.replica_divergence, color=colour, label=f"{how}: {reaches:.0%}")
        rows.append({
            "training": f"ring, {how}", "seed": seed, "missing": RING_LOSS, "rounds": len(found.replica_divergence), "replica_divergence": found.replica_divergence.mean(), "accuracy": reaches,
        })  # fmt: skip
    axis.set(xlabel="round", ylabel="max‖θi − θj‖ ÷ ‖θ‖ (%)", title="Replicas in a ring")
    axis.set_ylim(0, 1.55 * axis.get_ylim()[1])
    axis.legend(fontsize=8, loc="upper left", title="and accuracy at the end", title_fontsize=8)
    return pd.DataFrame(rows)


def _served(axis: Any, study: Study) -> None:
    """The same of workers that pull from a server: a line for each system under which they were apart, in the mean of its seeds."""
    found: dict[str, list[Run]] = {}
    for run in study.runs:
        if trainings.model(run) and trainings.replica_divergence(run).any():
            found.setdefault(_named(run), []).append(run)
    for dashes, (name, runs) in zip(DASHES, found.items(), strict=False):
        line = pd.concat([trainings.replica_divergence(run) for run in runs], axis="columns").mean(axis="columns")
        reaches = np.mean([trainings.accuracy(trainings.learnt(run)["accuracy"].to_numpy())[-1] for run in runs])
        axis.plot(line.index, 100 * line, dashes, color="black", linewidth=1.2, label=f"{name}: {reaches:.0%}")
    if found:
        axis.set(title="Replicas: in a ring; of a server (black)")
        axis.relim()
        axis.autoscale(axis="y")
        axis.set_ylim(0, 1.7 * axis.get_ylim()[1])
        axis.legend(fontsize=7, loc="upper left", title="and accuracy at the end", title_fontsize=8)


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

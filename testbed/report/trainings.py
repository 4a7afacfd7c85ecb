"""Trainings inside a run (``training.csv``), and computed ones, with missing ranges that were sampled or recorded in a
run.

Recorded ranges are those of gradients that were summed up in parts (`testbed.traces.collectives.transpose`).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from math import nan

import numpy as np
import pandas as pd

from testbed.core import system_text
from testbed.core.runs.load import LoadError, Run
from testbed.models import learning, ring

ROUNDS = 300
RING_ROUNDS = 150
DISPERSED = ", dispersed"  # behind a name
SETTLED = 5  # first rounds to leave out, in which OptiReduce measures its limits
NEAR = 0.9
LOOKS = 3  # accuracy measurements that are averaged
Spans = tuple[tuple[int, int], ...]
Rounds = tuple[tuple[Spans, ...], ...]  # by round and worker: missing ranges


def accuracy(curve: np.ndarray) -> np.ndarray:
    """The mean of each look and its two neighbours: a single one is chance."""
    return np.convolve(curve, np.full(LOOKS, 1 / LOOKS), "valid")


def reached(curve: np.ndarray, limit: float) -> float:
    """Rounds until the accuracy is there, between two looks in proportion; none: never."""
    smooth = accuracy(curve)
    there = np.flatnonzero(smooth >= limit)
    if not there.size:
        return nan
    look = int(there[0])
    part = (limit - smooth[look - 1]) / (smooth[look] - smooth[look - 1]) - 1 if look else 0.0
    return float(learning.task().every * (look + 1 + LOOKS // 2 + part))


def nothing(workers: int) -> Rounds:
    """Return rounds without missing ranges."""
    return (((),) * workers,)


@cache
def curve(holes: Rounds, seed: int, mean: Callable[[], learning.Mean] | None = None) -> np.ndarray:
    """The accuracy by looks of a training with these missing ranges, repeated cyclically; equal arguments are computed once."""
    again = [holes[number % len(holes)] for number in range(ROUNDS)]
    return learning.train(learning.task(), again, seed=seed, mean=mean and mean())


@cache
def rounds(holes: Rounds, seed: int, limit: float, mean: Callable[[], learning.Mean] | None = None) -> float:
    """Rounds of such a training until the accuracy is there (`reached`), and not one more; none: never in `ROUNDS`."""
    again = [holes[number % len(holes)] for number in range(ROUNDS)]
    looks = learning.train(
        learning.task(), again, seed=seed, mean=mean and mean(),
        enough=lambda looks: len(looks) >= LOOKS and float(np.mean(looks[-LOOKS:])) >= limit,
    )  # fmt: skip
    return reached(looks, limit)


def whole(seed: int, workers: int) -> tuple[float, float]:
    """Return the rounds to the accuracy that counts (`NEAR` times the last) without losses, and that accuracy."""
    looks = curve(nothing(workers), seed)
    limit = NEAR * float(accuracy(looks)[-1])
    return reached(looks, limit), limit


@cache
def in_a_ring(share: float, resync: int, seed: int, workers: int, *, gathers: bool = True) -> ring.Trained:
    """A training by replicas in a ring whose hops lose packets by chance, for `RING_ROUNDS` rounds."""
    lost = ring.lost(share, seed, workers, gathers=gathers)
    return ring.train(learning.task(), RING_ROUNDS, workers, lost, resync=resync, seed=seed)


def learnt(run: Run) -> pd.DataFrame:
    """Return ``round, end_s, accuracy, missing`` of a job that trained in its run, a row for each accuracy measurement.

    ``missing``: fraction of the gradients missing since the previous measurement. Raises `LoadError` if it did not train.
    """
    looks = None if run.training is None else run.training.dropna(subset="accuracy").sort_values("iteration")
    if looks is None or looks.empty:
        raise LoadError(
            f"{run.path}: its job does not train (`train`), or stopped before its first accuracy measurement. Run it longer."
        )
    found = pd.DataFrame({"round": looks["iteration"] + 1, "end_s": looks["end_s"], "accuracy": looks["accuracy"]})
    return found.assign(missing=_missing(run, found["round"])).reset_index(drop=True)


def replica_divergence(run: Run) -> pd.Series[float]:
    """Return the divergence of workers' parameters, by round from 1 on; empty: not recorded."""
    if run.training is None or "replica_divergence" not in run.training:
        return pd.Series(dtype=float)
    rounds = run.training.sort_values("iteration")
    return pd.Series(rounds["replica_divergence"].to_numpy(float), rounds["iteration"].to_numpy() + 1).dropna()


def _missing(run: Run, rounds: pd.Series[int]) -> pd.Series[float]:
    zeros = pd.Series(0.0, rounds.index)
    if run.messages is None:
        return zeros
    gradients = run.messages[(run.messages["side"] == "receive") & (run.messages["stage"] == "gradient")]
    look = np.searchsorted(rounds.to_numpy(), gradients["iteration"].to_numpy() + 1)
    sums = gradients.groupby(look)[["missing", "bytes"]].sum().reindex(range(len(rounds))).fillna(0)
    return pd.Series((sums["missing"] / sums["bytes"].clip(lower=1)).to_numpy(), rounds.index)


def model(run: Run) -> str:
    """Return the model that its job trains, without options; empty: none."""
    return system_text.name_of(run.jobs[0].trains or "")


def described(run: Run) -> str:
    """The model's name in a caption, with its size."""
    name = learning.title(model(run))
    return f"{name[0].upper()}{name[1:]}, {learning.task(model(run)).parameters:,} numbers"


def fill(run: Run) -> str:
    """The treatment of missing ranges there, and whether gradients are Hadamard-transformed."""
    return learning.fill(run.jobs[0].trains or "") + dispersed(run)


def shown(name: str) -> str:
    """A training's name as figures show it: the field's terms in place of those of the tables."""
    return (
        name.replace(DISPERSED, ", Hadamard")
        .replace(", links lose", ", lossy links")
        .replace(", switch drops", ", lossy switch")
    )


def dispersed(run: Run) -> str:
    """Suffix of a name: gradients travel Hadamard-transformed."""
    return DISPERSED if run.jobs[0].trains and learning.disperses(run.jobs[0].trains) else ""


def loses(run: Run) -> bool:
    """Return True if any of its exchanged data is missing."""
    return run.messages is not None and bool(run.messages["missing"].sum())


def follows(run: Run) -> bool:
    """Return True if the tolerated fraction of its transport changes with the rounds."""
    return dict(system_text.part(run.jobs[0].transport).options).get("tolerance", "").startswith("phase:")


def spans(text: object) -> Spans:
    """Offset and length of each missing range, as in ``messages.csv``."""
    if not isinstance(text, str) or not text:
        return ()
    return tuple((int(at), int(size)) for at, _, size in (each.partition("+") for each in text.split(" ")))


def holes(run: Run) -> tuple[Rounds, float]:
    """Return the missing ranges of every round after the first ones, by worker, in its complete gradient; and the
    missing fraction."""
    job, messages = run.jobs[0], run.messages
    workers = len(job.hosts)
    if messages is None or "missing_ranges" not in messages:
        return nothing(workers), 0.0
    begins = [learning.task().bytes * rank // workers for rank in range(workers + 1)]  # of the part that each sums up
    gradients = messages[
        (messages["side"] == "receive") & (messages["stage"] == "gradient") & (messages["iteration"] >= SETTLED)
    ]
    if (gradients["bytes"] != gradients["worker"].map(lambda rank: begins[rank + 1] - begins[rank])).any():
        raise LoadError(
            f"{run.path}: its gradients do not have {learning.task().bytes} bytes, or are not summed in parts. "
            "Run the unchanged experiment."
        )
    found: dict[tuple[int, int], list[tuple[int, int]]] = {}
    for row in gradients.itertuples():
        at = begins[int(row.worker)]  # type: ignore[arg-type]
        ranges = found.setdefault((int(row.iteration), int(row.peer)), [])  # type: ignore[arg-type]
        ranges += [(at + offset, size) for offset, size in spans(row.missing_ranges)]
    numbers = range(SETTLED, job.iterations)
    rounds = tuple(
        tuple(tuple(sorted(found.get((number, worker), []))) for worker in range(workers)) for number in numbers
    )
    return rounds, float(gradients["missing"].sum() / max(1, gradients["bytes"].sum()))

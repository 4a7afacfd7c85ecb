"""Trainings with the holes that a network left in gradients summed up in parts (`workloads.collectives.transpose`): rounds to an accuracy."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from math import nan

import numpy as np

from analysis import glyphs
from core.runs.load import LoadError, Run
from theory import learning, ring

ROUNDS = 300
RING_ROUNDS = 150
SETTLED = 5  # rounds that are no example of the others: OptiReduce measures
NEAR = 0.9
LOOKS = 3  # at the accuracy, taken together
Spans = tuple[tuple[int, int], ...]
Rounds = tuple[tuple[Spans, ...], ...]  # of each its workers' holes


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
    return float(glyphs.task().every * (look + 1 + LOOKS // 2 + part))


def nothing(workers: int) -> Rounds:
    """No holes, round after round."""
    return (((),) * workers,)


@cache
def curve(holes: Rounds, seed: int, mean: Callable[[], learning.Mean] | None = None) -> np.ndarray:
    """The accuracy by looks of a training whose rounds have these holes, again and again; the same is computed once."""
    again = [holes[number % len(holes)] for number in range(ROUNDS)]
    return learning.train(glyphs.task(), again, seed=seed, mean=mean and mean())


@cache
def rounds(holes: Rounds, seed: int, limit: float, mean: Callable[[], learning.Mean] | None = None) -> float:
    """Rounds of such a training until the accuracy is there (`reached`), and not one more; none: never in `ROUNDS`."""
    again = [holes[number % len(holes)] for number in range(ROUNDS)]
    looks = learning.train(
        glyphs.task(), again, seed=seed, mean=mean and mean(),
        enough=lambda looks: len(looks) >= LOOKS and float(np.mean(looks[-LOOKS:])) >= limit,
    )  # fmt: skip
    return reached(looks, limit)


def whole(seed: int, workers: int) -> tuple[float, float]:
    """With nothing missing: rounds to the accuracy that counts (`NEAR` of the last), and that accuracy."""
    looks = curve(nothing(workers), seed)
    limit = NEAR * float(accuracy(looks)[-1])
    return reached(looks, limit), limit


@cache
def in_a_ring(share: float, resync: int, seed: int, workers: int, *, gathers: bool = True) -> ring.Trained:
    """A training by replicas in a ring whose hops lose packets by chance, for `RING_ROUNDS` rounds."""
    lost = ring.lost(share, seed, workers, gathers=gathers)
    return ring.train(glyphs.task(), RING_ROUNDS, workers, lost, resync=resync, seed=seed)


@cache
def filled(holes: Rounds, fill: learning.Fill, seed: int) -> np.ndarray:
    """The accuracy by looks of a training by a parameter server with these holes, round by round."""
    return learning.train(glyphs.task(), holes, fill=fill, seed=seed)


def served(run: Run) -> Rounds | None:
    """What is missing of the gradients that a parameter server received, by round and worker; None: nothing anywhere."""
    if run.messages is None or "lost" not in run.messages:
        return None
    gradients = run.messages[(run.messages["end"] == "receive") & (run.messages["stage"] == "gradient")]
    if not int(gradients["missing"].sum()):
        return None
    told = {(int(row.iteration), int(row.peer)): spans(row.lost) for row in gradients.itertuples()}  # type: ignore[arg-type]
    workers = range(1, len(run.jobs[0].hosts))
    return tuple(tuple(told[number, worker] for worker in workers) for number in range(run.jobs[0].iterations))


def follows(run: Run) -> bool:
    """Whether the share that its transport lets be missing follows the rounds."""
    options = run.jobs[0].transport.partition(":")[2].split(",")
    return any(option.startswith("tolerance=phase:") for option in options)


def spans(text: object) -> Spans:
    """Offset and length of each hole, as ``messages.csv`` has them."""
    if not isinstance(text, str) or not text:
        return ()
    return tuple((int(at), int(size)) for at, _, size in (each.partition("+") for each in text.split(" ")))


def holes(run: Run) -> tuple[Rounds, float]:
    """Of every round after the first ones by worker, of its whole gradient; and the share of the gradients that is missing."""
    job, messages = run.jobs[0], run.messages
    workers = len(job.hosts)
    if messages is None or "lost" not in messages:
        return nothing(workers), 0.0
    begins = [glyphs.task().bytes * rank // workers for rank in range(workers + 1)]  # of the part that each sums up
    told = messages[
        (messages["end"] == "receive") & (messages["stage"] == "gradient") & (messages["iteration"] >= SETTLED)
    ]
    if (told["bytes"] != told["worker"].map(lambda rank: begins[rank + 1] - begins[rank])).any():
        raise LoadError(
            f"{run.path}: its gradients are not of {glyphs.task().bytes} bytes, which is what is learnt here, or are not summed up in parts; "
            f"run the experiment as it is"
        )
    found: dict[tuple[int, int], list[tuple[int, int]]] = {}
    for row in told.itertuples():
        at = begins[int(row.worker)]  # type: ignore[arg-type]
        mine = found.setdefault((int(row.iteration), int(row.peer)), [])  # type: ignore[arg-type]
        mine += [(at + offset, size) for offset, size in spans(row.lost)]
    numbers = range(SETTLED, job.iterations)
    rounds = tuple(
        tuple(tuple(sorted(found.get((number, worker), []))) for worker in range(workers)) for number in numbers
    )
    return rounds, float(told["missing"].sum() / max(1, told["bytes"].sum()))

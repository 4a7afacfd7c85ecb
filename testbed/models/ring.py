"""Compute the training result of each rank if gradients are summed in a ring that loses packets.

In the first half of a ring all-reduce (reduce-scatter), a missing range loses the sum of all ranks before it. In the
second (all-gather), it leaves the receiving rank, and all ranks after it, without the sum. Parameters there stay
unchanged (as in MLT, NSDI 2024: a missing gradient is 0), so replicas diverge, until one rank sends its own to the
others, reliably.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from testbed.models.gradient_masks import PACKET_BYTES
from testbed.replay.training import ELEMENT, Task
from testbed.replay.training.layers import Array
from testbed.replay.training.replicas import divergence

Here = npt.NDArray[np.bool_]
# Of a round, a step (from 0 on; gradients in the first half) and the rank that receives: which of so many numbers came.
Arrives = Callable[[int, int, int, int], Here]


@dataclass(frozen=True)
class Trained:
    """The result of a training by replicas: rank 0's accuracy by looks (0 to 1), and max‖θi − θj‖ ÷ ‖θ0‖ after every round."""

    accuracy: npt.NDArray[np.float64]
    replica_divergence: npt.NDArray[np.float64]


def reduced(gradients: Sequence[Array], arrives: Callable[[int, int, int], Here]) -> list[Array]:
    """The mean of ``gradients`` as each rank of a ring has it, of which ``arrives(step, rank, count)`` came."""
    n = len(gradients)
    ends = np.linspace(0, len(gradients[0]), n + 1).astype(int)
    chunks = [slice(begin, end) for begin, end in pairwise(ends)]
    sums = [gradient.copy() for gradient in gradients]
    for step in range(2 * (n - 1)):
        gathers = step >= n - 1
        sent = [one.copy() for one in sums]
        for rank in range(n):
            # The left neighbour sends: in the first half its own chunk, then the one it has just received; in the second the complete sums.
            chunk = chunks[(rank - 1 - step) % n if not gathers else (rank - (step - n + 1)) % n]
            here = arrives(step, rank, chunk.stop - chunk.start)
            came = np.where(here, sent[(rank - 1) % n][chunk], np.float32(0))
            sums[rank][chunk] = came if gathers else gradients[rank][chunk] + came
    return [one / np.float32(n) for one in sums]


def lost(share: float, seed: int, ranks: int, *, gathers: bool = True) -> Arrives:
    """Return an `Arrives` in which every packet of every hop is lost with probability ``share``; without ``gathers``
    only gradients are."""

    def arrives(number: int, step: int, rank: int, count: int) -> Here:
        if not gathers and step >= ranks - 1:
            return np.ones(count, bool)
        draw = np.random.default_rng((seed, number, step, rank))
        each = PACKET_BYTES // ELEMENT
        return np.repeat(draw.random(-(-count // each)) >= share, each)[:count]

    return arrives


def train(task: Task, rounds: int, ranks: int, arrives: Arrives, *, resync: int = 0, seed: int = 0) -> Trained:
    """Train a replica on each of ``ranks`` ranks; every ``resync`` rounds (0: never) all take rank 0's parameters and momentum.

    ``seed`` draws the first parameters and every rank's examples, as in `testbed.models.learning.train`.
    """
    draw = np.random.default_rng(seed)
    first = task.model.first(draw)
    replicas = [first.copy() for _ in range(ranks)]
    velocities = [np.zeros(task.parameters, np.float32) for _ in range(ranks)]
    accuracies, distances = [], []
    for number in range(1, rounds + 1):
        gradients = [task.gradient(replica, draw) for replica in replicas]
        means = reduced(gradients, partial(arrives, number))
        for replica, velocity, mean in zip(replicas, velocities, means, strict=True):
            velocity *= task.momentum
            velocity += mean
            replica -= task.rate * velocity
        if resync and number % resync == 0:
            replicas = [replicas[0].copy() for _ in replicas]
            velocities = [velocities[0].copy() for _ in velocities]
        distances.append(divergence(replicas, replicas[0]))
        if number % task.every == 0:
            accuracies.append(task.accuracy(replicas[0]))
    return Trained(np.array(accuracies), np.array(distances))

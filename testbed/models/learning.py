"""Compute the cost in accuracy of missing ranges in the gradients of a small training.

The missing bytes are given: a transport that does not examine its data would lose the same ones. If it does, or if the
next gradients depend on losses, jobs train inside the run (`testbed.replay.training`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from math import prod
from typing import get_args

import numpy as np
import numpy.typing as npt

from testbed.replay import training
from testbed.replay.training import Holes, Task, find, parse
from testbed.replay.training.layers import Array
from testbed.replay.training.mean import gathered
from testbed.replay.training.models import perceptron

Fill = training.Fill
FILLS: tuple[Fill, ...] = get_args(Fill)
Mean = Callable[[Sequence[Array], Sequence[Holes]], Array]  # a server's mean of its workers' gradients, in every round


@cache
def task(name: str = "perceptron") -> Task:
    """Return the model called ``name``, with its data."""
    found: Task = find(name).task()
    return found


def title(name: str) -> str:
    """A description of the model of that name, in a few words."""
    return str(find(name).TITLE)


def fill(trains: str) -> Fill:
    """The treatment of missing ranges where a job trains this, as typed."""
    return parse(trains).options.fill


def disperses(trains: str) -> bool:
    """Return True if gradients are sent Hadamard-transformed."""
    return parse(trains).options.hadamard


def first_layer() -> int:
    """Numbers of the perceptron's first layer, its biases included."""
    weights, bias, *_ = perceptron.MODEL.parts.shapes
    return prod(weights) + prod(bias)


def train(
    task: Task,
    missing: Sequence[Sequence[Holes]],
    *,
    fill: Fill = "zero",
    seed: int = 0,
    mean: Mean | None = None,
    enough: Callable[[Sequence[float]], bool] | None = None,
) -> npt.NDArray[np.float64]:
    """Accuracy on the test set after every ``task.every`` rounds, 0 to 1, of a training of ``len(missing)`` rounds.

    ``missing[round][worker]``: the missing ranges of that worker's gradient; empty where it is complete. ``seed`` selects the first
    parameters and every worker's examples, the same for all missing ranges. ``mean``: replaces `testbed.replay.training.mean.gathered` with ``fill``. ``enough``, called at every evaluation, ends it early.
    """
    draw = np.random.default_rng(seed)
    flat = task.model.first(draw)
    owed = [np.zeros(task.parameters, np.float32) for _ in missing[0]]  # `feedback`: the lost sum of each worker so far
    accuracies: list[float] = []
    velocity: Array = np.zeros(task.parameters, np.float32)
    for number, holes in enumerate(missing, 1):
        gradients = [task.gradient(flat, draw) for _ in holes]
        velocity *= task.momentum
        velocity += mean(gradients, holes) if mean else gathered(gradients, holes, owed, fill)
        flat -= task.rate * velocity
        if number % task.every == 0:
            accuracies.append(task.accuracy(flat))
            if enough and enough(accuracies):
                break
    return np.array(accuracies)

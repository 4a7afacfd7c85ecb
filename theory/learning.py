"""A small training whose gradients do not arrive whole: what holes cost in accuracy, computed.

Data-parallel training by a parameter server: every worker's gradient, a flat vector of float32, travels as one message; the server
fills what is missing of it and takes the mean. Which bytes are missing is given: a transport that loses packets does not look into
them, so that what a network did to any bytes, it would have done to these.

The model is a perceptron with one hidden layer of rectifiers, trained by stochastic gradient descent with momentum on softmax cross-entropy.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

ELEMENT = 4  # bytes of a float32
Array = npt.NDArray[np.float32]
Holes = Sequence[tuple[int, int]]  # offset and length in bytes, of one gradient
Mean = Callable[
    [Sequence[Array], Sequence[Holes]], Array
]  # what a server makes of its workers' gradients, round after round
Fill = Literal["zero", "contributors", "feedback"]  # as in `transports.torch`


@dataclass(frozen=True)
class Examples:
    """Inputs, a row each, and the class of each."""

    inputs: Array
    classes: npt.NDArray[np.int64]


@dataclass(frozen=True)
class Task:
    """What is learnt, and how: the same for whatever the network does."""

    train: Examples
    test: Examples
    hidden: int = 96
    batch: int = 16  # examples of a worker and round
    rate: float = 0.2  # of learning
    momentum: float = 0.9
    every: int = 10  # rounds between two looks at the accuracy

    @property
    def parameters(self) -> int:
        """Numbers of a gradient."""
        inputs, classes = int(self.train.inputs.shape[1]), int(self.train.classes.max()) + 1
        return (inputs + 1) * self.hidden + (self.hidden + 1) * classes

    @property
    def bytes(self) -> int:
        """Of a gradient."""
        return ELEMENT * self.parameters


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

    ``missing[round][worker]``: the holes of that worker's gradient; empty where it came whole. ``seed`` draws the first
    parameters and every worker's examples, alike for any holes. ``mean``: in place of `gathered` with ``fill``. ``enough``, asked at every look, ends it early.
    """
    draw = np.random.default_rng(seed)
    model = Perceptron(task, draw)
    owed = [np.zeros(task.parameters, np.float32) for _ in missing[0]]  # by `feedback`: what a worker lost so far
    accuracies: list[float] = []
    velocity: Array = np.zeros(task.parameters, np.float32)
    for number, holes in enumerate(missing, 1):
        gradients = []
        for _ in holes:
            chosen = draw.integers(len(task.train.classes), size=task.batch)
            gradients.append(model.gradient(task.train.inputs[chosen], task.train.classes[chosen]))
        velocity *= task.momentum
        velocity += mean(gradients, holes) if mean else gathered(gradients, holes, owed, fill)
        model.flat -= task.rate * velocity
        if number % task.every == 0:
            accuracies.append(model.accuracy(task.test))
            if enough and enough(accuracies):
                break
    return np.array(accuracies)


def gathered(gradients: Sequence[Array], holes: Sequence[Holes], owed: list[Array], fill: Fill) -> Array:
    """The mean that a server makes of its workers' gradients; ``owed`` (what each has not delivered so far) changes under ``feedback``."""
    total: Array = np.zeros_like(gradients[0])
    arrived: Array = np.zeros_like(total)
    for worker, (gradient, lost) in enumerate(zip(gradients, holes, strict=True)):
        here = _arrived(len(gradient), lost)
        sent = gradient + owed[worker] if fill == "feedback" else gradient
        if fill == "feedback":
            owed[worker] = np.where(here, 0, sent).astype(np.float32)
        total += np.where(here, sent, 0)
        arrived += here
    return total / (np.maximum(arrived, 1) if fill == "contributors" else np.float32(len(gradients)))


def _arrived(parameters: int, holes: Holes) -> npt.NDArray[np.bool_]:
    """Which elements came; one of which a single byte is missing did not."""
    here = np.ones(parameters, bool)
    for at, size in holes:
        here[at // ELEMENT : -(-(at + size) // ELEMENT)] = False
    return here


class Perceptron:
    def __init__(self, task: Task, draw: np.random.Generator) -> None:
        inputs, classes = task.train.inputs.shape[1], int(task.train.classes.max()) + 1
        shapes = ((inputs, task.hidden), (task.hidden,), (task.hidden, classes), (classes,))
        ends = np.cumsum([0, *(int(np.prod(shape)) for shape in shapes)])
        self._parts = [(slice(begin, end), shape) for begin, end, shape in zip(ends, ends[1:], shapes, strict=False)]
        self.flat = np.zeros(task.parameters, np.float32)
        for (where, shape), size in zip(self._parts[::2], (inputs, task.hidden), strict=True):  # He et al., 2015
            self.flat[where] = draw.normal(0, np.sqrt(2 / size), int(np.prod(shape)))

    def _split(self, flat: Array) -> list[Array]:
        return [flat[where].reshape(shape) for where, shape in self._parts]

    def gradient(self, inputs: Array, classes: npt.NDArray[np.int64]) -> Array:
        """Of the mean loss, flat."""
        first, bias, second, last = self._split(self.flat)
        hidden = np.maximum(inputs @ first + bias, 0)
        scores = hidden @ second + last
        error = np.exp(scores - scores.max(axis=1, keepdims=True))
        error /= error.sum(axis=1, keepdims=True)
        error[np.arange(len(classes)), classes] -= 1
        error /= len(classes)
        below = (error @ second.T) * (hidden > 0)
        parts = (inputs.T @ below, below.sum(axis=0), hidden.T @ error, error.sum(axis=0))
        return np.concatenate([part.ravel() for part in parts]).astype(np.float32)

    def accuracy(self, examples: Examples) -> float:
        first, bias, second, last = self._split(self.flat)
        scores = np.maximum(examples.inputs @ first + bias, 0) @ second + last
        return float((scores.argmax(axis=1) == examples.classes).mean())

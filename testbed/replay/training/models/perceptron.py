"""A classifier of letters with one hidden layer of ReLU."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from testbed.replay.training import Task, letters
from testbed.replay.training.layers import Array, Parts, error, flat

TITLE = "a perceptron that reads letters"
HIDDEN = 96


@dataclass(frozen=True)
class Perceptron:
    inputs: int
    hidden: int
    classes: int

    @cached_property
    def parts(self) -> Parts:
        return Parts((self.inputs, self.hidden), (self.hidden,), (self.hidden, self.classes), (self.classes,))

    @property
    def parameters(self) -> int:
        return self.parts.size

    def first(self, draw: np.random.Generator) -> Array:
        return self.parts.drawn(draw)

    def gradient(self, flat_: Array, inputs: Array, classes: npt.NDArray[np.int64]) -> Array:
        first, bias, second, last = self.parts.split(flat_)
        hidden = np.maximum(inputs @ first + bias, 0)
        wrong = error(hidden @ second + last, classes)
        below = (wrong @ second.T) * (hidden > 0)
        return flat((inputs.T @ below, below.sum(axis=0), hidden.T @ wrong, wrong.sum(axis=0)))

    def guesses(self, flat_: Array, inputs: Array) -> npt.NDArray[np.int64]:
        first, bias, second, last = self.parts.split(flat_)
        return np.asarray((np.maximum(inputs @ first + bias, 0) @ second + last).argmax(axis=1))


MODEL = Perceptron(letters.SIDE**2, HIDDEN, letters.CLASSES)


def task() -> Task:
    """Reading a letter: 26 classes."""
    train, test = letters.examples()
    return Task(MODEL, train, test)

"""The building blocks of `testbed.replay.training.models`: named parts of a flat vector, and the end of every classifier."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float32]
Shape = tuple[int, ...]


class Parts:
    """A flat vector of parameters as arrays of these shapes, one behind the other."""

    def __init__(self, *shapes: Shape) -> None:
        ends = np.cumsum([0, *(int(np.prod(shape)) for shape in shapes)])
        self.shapes = shapes
        self._places = [slice(begin, end) for begin, end in pairwise(map(int, ends))]

    @property
    def size(self) -> int:
        return int(self._places[-1].stop)

    def split(self, flat: Array) -> list[Array]:
        """Return views of ``flat``, one for each part."""
        return [flat[place].reshape(shape) for place, shape in zip(self._places, self.shapes, strict=True)]

    def drawn(self, draw: np.random.Generator, gain: float = 2.0) -> Array:
        """Weights with a variance of ``gain`` ÷ their inputs (2 for rectifiers: He et al., 2015), everything else 0."""
        flat = np.zeros(self.size, np.float32)
        for place, shape in zip(self._places, self.shapes, strict=True):
            if len(shape) > 1:
                inputs = int(np.prod(shape[:-1]))
                flat[place] = draw.normal(0, np.sqrt(gain / inputs), int(np.prod(shape)))
        return flat


def flat(parts: Sequence[npt.NDArray[np.floating]]) -> Array:
    """The gradients of all parts as one vector."""
    return np.concatenate([part.ravel() for part in parts]).astype(np.float32)


def error(scores: Array, classes: npt.NDArray[np.int64]) -> Array:
    """The gradient of the mean softmax cross-entropy in the scores, a row each."""
    found = np.exp(scores - scores.max(axis=1, keepdims=True))
    found /= found.sum(axis=1, keepdims=True)
    found[np.arange(len(classes)), classes] -= 1
    found /= len(classes)
    return np.asarray(found)

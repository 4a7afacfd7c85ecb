"""A classifier of letters: two convolutions, each with ReLU and pooling, and a fully connected layer."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from testbed.replay.training import Task, letters
from testbed.replay.training.layers import Array, Parts, error, flat

TITLE = "a convolutional network that reads letters"
KERNEL, POOL = 3, 2
TESTED = 500  # pictures at a time: more would take memory


@dataclass(frozen=True)
class Convolutional:
    side: int  # of a picture, a multiple of 4
    channels: tuple[int, int]
    hidden: int
    classes: int

    @cached_property
    def parts(self) -> Parts:
        one, two = self.channels
        pooled = (self.side // POOL**2) ** 2 * two
        return Parts(
            (KERNEL**2, one), (one,), (KERNEL**2 * one, two), (two,), (pooled, self.hidden), (self.hidden,),
            (self.hidden, self.classes), (self.classes,),
        )  # fmt: skip

    @property
    def parameters(self) -> int:
        return self.parts.size

    def first(self, draw: np.random.Generator) -> Array:
        return self.parts.drawn(draw)

    def gradient(self, flat_: Array, inputs: Array, classes: npt.NDArray[np.int64]) -> Array:
        kernel, bias, kernel2, bias2, third, bias3, last, bias4 = self.parts.split(flat_)
        near = _patches(self._pictures(inputs))
        one = np.maximum(near @ kernel + bias, 0)
        pooled, from_one = _pooled(one)
        near2 = _patches(pooled)
        two = np.maximum(near2 @ kernel2 + bias2, 0)
        pooled2, from_two = _pooled(two)
        seen = pooled2.reshape(len(inputs), -1)
        hidden = np.maximum(seen @ third + bias3, 0)
        wrong = error(hidden @ last + bias4, classes)
        below = (wrong @ last.T) * (hidden > 0)
        wrong2 = _unpooled((below @ third.T).reshape(pooled2.shape), from_two, two)
        wrong1 = _unpooled(_gathered(wrong2 @ kernel2.T, pooled.shape), from_one, one)
        return flat((
            _rows(near).T @ _rows(wrong1), _rows(wrong1).sum(axis=0), _rows(near2).T @ _rows(wrong2), _rows(wrong2).sum(axis=0),
            seen.T @ below, below.sum(axis=0), hidden.T @ wrong, wrong.sum(axis=0),
        ))  # fmt: skip

    def guesses(self, flat_: Array, inputs: Array) -> npt.NDArray[np.int64]:
        parts = self.parts.split(flat_)
        found = [self._scores(parts, inputs[at : at + TESTED]) for at in range(0, len(inputs), TESTED)]
        return np.asarray(np.concatenate(found).argmax(axis=1))

    def _scores(self, parts: list[Array], inputs: Array) -> Array:
        kernel, bias, kernel2, bias2, third, bias3, last, bias4 = parts
        pooled, _ = _pooled(np.maximum(_patches(self._pictures(inputs)) @ kernel + bias, 0))
        pooled, _ = _pooled(np.maximum(_patches(pooled) @ kernel2 + bias2, 0))
        return np.asarray(np.maximum(pooled.reshape(len(inputs), -1) @ third + bias3, 0) @ last + bias4)

    def _pictures(self, inputs: Array) -> Array:
        return inputs.reshape(len(inputs), self.side, self.side, 1)


def _rows(image: Array) -> Array:
    return image.reshape(-1, image.shape[-1])


def _patches(image: Array) -> Array:
    """Return the neighbourhood of each pixel, all channels: (pictures, side, side, KERNEL² × channels); 0 outside the
    picture."""
    count, side, _, channels = image.shape
    edge = KERNEL // 2
    padded = np.pad(image, ((0, 0), (edge, edge), (edge, edge), (0, 0)))
    shifted = [padded[:, y : y + side, x : x + side] for y in range(KERNEL) for x in range(KERNEL)]
    return np.stack(shifted, axis=3).reshape(count, side, side, KERNEL**2 * channels)


def _gathered(patches: Array, shape: tuple[int, ...]) -> Array:
    """The sum over all neighbourhoods of each position (the transpose of `_patches`)."""
    count, side, _, channels = shape
    edge = KERNEL // 2
    padded = np.zeros((count, side + 2 * edge, side + 2 * edge, channels), np.float32)
    parts = patches.reshape(count, side, side, KERNEL**2, channels)
    for place in range(KERNEL**2):
        y, x = divmod(place, KERNEL)
        padded[:, y : y + side, x : x + side] += parts[:, :, :, place]
    return padded[:, edge:-edge, edge:-edge]


def _pooled(image: Array) -> tuple[Array, npt.NDArray[np.int64]]:
    """The largest of each four, and which of them it was."""
    count, side, _, channels = image.shape
    half = side // POOL
    four = image.reshape(count, half, POOL, half, POOL, channels).transpose(0, 1, 3, 5, 2, 4).reshape(count, half, half, channels, POOL**2)  # fmt: skip
    which = four.argmax(axis=4)
    return np.take_along_axis(four, which[..., None], axis=4)[..., 0], which


def _unpooled(gradient: Array, which: npt.NDArray[np.int64], image: Array) -> Array:
    """The gradient at each of the four, before the rectifiers that made ``image``."""
    count, half, _, channels = gradient.shape
    four = np.zeros((*gradient.shape, POOL**2), np.float32)
    np.put_along_axis(four, which[..., None], gradient[..., None], axis=4)
    spread = four.reshape(count, half, half, channels, POOL, POOL).transpose(0, 1, 4, 2, 5, 3).reshape(image.shape)
    return np.asarray(spread * (image > 0))


MODEL = Convolutional(letters.SIDE, (8, 16), 64, letters.CLASSES)


def task() -> Task:
    """Reading a letter: 26 classes."""
    train, test = letters.examples()
    return Task(MODEL, train, test, rate=0.1)

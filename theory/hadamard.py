"""Dispersal of losses by a randomised Hadamard transform: what a packet held is missing a little everywhere (OptiReduce, NSDI 2025).

Signs drawn at random and a fast Walsh-Hadamard transform are a rotation: a sender transforms its gradient, the mean is transformed back,
and without loss nothing changes. A gradient's length stays: where it is no power of two, a first transform covers its head and a second
one its tail, each the largest power of two that fits, and they overlap; so numbers are put into an order drawn at random before.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np
import numpy.typing as npt
from scipy.linalg import hadamard

from workloads.learning import Fill, Holes
from workloads.learning.layers import Array
from workloads.learning.mean import gathered

RADIX = 32
__all__ = ["Dispersed", "collected", "dispersed"]


def dispersed(values: Array, seed: int) -> Array:
    """``values``, a row each, as they travel; all who have ``seed`` draw the same signs and order."""
    order, head, tail = _drawn(values.shape[-1], seed)
    result: Array = np.array(values[..., order], np.float32)
    size = len(head)
    result[..., :size] = _transformed(result[..., :size] * head)
    if size < len(order):
        result[..., -size:] = _transformed(result[..., -size:] * tail)
    return result


def collected(values: Array, seed: int) -> Array:
    """What `dispersed` made these of."""
    order, head, tail = _drawn(values.shape[-1], seed)
    mixed: Array = np.array(values, np.float32)
    size = len(head)
    if size < len(order):
        mixed[..., -size:] = _transformed(mixed[..., -size:]) * tail
    mixed[..., :size] = _transformed(mixed[..., :size]) * head
    result = np.empty_like(mixed)
    result[..., order] = mixed
    return result


class Dispersed:
    """The mean of gradients that travel dispersed (a `theory.learning.Mean`); new signs every round, or the same directions were always lost."""

    def __init__(self, fill: Fill = "zero", seed: int = 0) -> None:
        self.fill, self.seed, self.round = fill, seed, 0
        self.owed: list[Array] = []  # by `feedback`, not dispersed

    def __call__(self, gradients: Sequence[Array], holes: Sequence[Holes]) -> Array:
        self.round += 1
        signs = hash((self.seed, self.round)) % 2**63
        sent = dispersed(np.stack(gradients), signs)
        owed = list(dispersed(np.stack(self.owed), signs)) if self.owed else [np.zeros_like(one) for one in sent]
        mean = gathered(list(sent), holes, owed, self.fill)
        if self.fill == "feedback":
            self.owed = list(collected(np.stack(owed), signs))
        return collected(mean, signs)


@lru_cache(maxsize=2)
def _drawn(length: int, seed: int) -> tuple[npt.NDArray[np.int64], Array, Array]:
    """An order of the numbers, and the signs of the head's and the tail's transform."""
    size = 1 << (length.bit_length() - 1)
    draw = np.random.default_rng(seed)
    order = draw.permutation(length)
    head, tail = (1 - 2 * draw.integers(2, size=(2, size))).astype(np.float32)
    return order, head, tail


def _transformed(values: Array) -> Array:
    """The orthonormal Walsh-Hadamard transform of the last axis, a power of two long; its own inverse.

    The matrix is a Kronecker product of small ones: each takes the last digits of a number's place, which then go to the front.
    """
    size = left = values.shape[-1]
    rows = values.reshape(-1, size)
    while left > 1:
        radix = min(left, RADIX)
        matrix = hadamard(radix, np.float32)
        rows = (rows.reshape(len(rows), -1, radix) @ matrix).swapaxes(1, 2).reshape(len(rows), size)
        left //= radix
    return np.asarray(rows.reshape(values.shape) / np.float32(np.sqrt(size)), np.float32)

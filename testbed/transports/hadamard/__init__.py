"""Spread losses by a randomised Hadamard transform, so that a lost packet costs a little of every number (OptiReduce,
NSDI 2025).

Random signs and a fast Walsh-Hadamard transform are a rotation: a sender transforms its gradient, the mean is
transformed back, and without loss nothing changes. The length of a gradient stays. If it is no power of two, one
transform covers its head and another its tail, each of the largest power of two that fits. They overlap, so numbers are
put into a random order before.
"""

from __future__ import annotations

from functools import cache, lru_cache

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float32]
RADIX = 32
SIGNS = 7  # appended to a seed: a separate stream of random numbers for signs
Seed = int | tuple[int, ...]  # another one every round: with the same signs, the same directions would always be lost


def dispersed(values: Array, seed: Seed) -> Array:
    """``values``, a row each, in transformed form; all ranks with the same ``seed`` get the same signs and order."""
    order, head, tail = _drawn(values.shape[-1], seed)
    result: Array = np.array(values[..., order], np.float32)
    size = len(head)
    result[..., :size] = _transformed(result[..., :size] * head)
    if size < len(order):
        result[..., -size:] = _transformed(result[..., -size:] * tail)
    return result


def collected(values: Array, seed: Seed) -> Array:
    """The inverse of `dispersed`."""
    order, head, tail = _drawn(values.shape[-1], seed)
    mixed: Array = np.array(values, np.float32)
    size = len(head)
    if size < len(order):
        mixed[..., -size:] = _transformed(mixed[..., -size:]) * tail
    mixed[..., :size] = _transformed(mixed[..., :size]) * head
    result = np.empty_like(mixed)
    result[..., order] = mixed
    return result


@lru_cache(maxsize=2)
def _drawn(length: int, seed: Seed) -> tuple[npt.NDArray[np.int64], Array, Array]:
    """An order of the numbers, and the signs of the head's and the tail's transform."""
    size = 1 << (length.bit_length() - 1)
    draw = np.random.default_rng([*((seed,) if isinstance(seed, int) else seed), SIGNS])
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
        rows = (rows.reshape(len(rows), -1, radix) @ _matrix(radix)).swapaxes(1, 2).reshape(len(rows), size)
        left //= radix
    return np.asarray(rows.reshape(values.shape) / np.float32(np.sqrt(size)), np.float32)


@cache
def _matrix(size: int) -> Array:
    """Hadamard's, of a power of two, by Sylvester's construction."""
    made = np.ones((1, 1), np.float32)
    while len(made) < size:
        made = np.block([[made, made], [made, -made]])
    return made

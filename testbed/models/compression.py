"""Compress gradients before they are sent: only the largest numbers, or four bits of each; the rest is added to later
gradients.

Both send about the same bytes (`SHARE`): for top-k, the position of a number needs bytes, too. Error feedback (Stich et
al., 2018; Karimireddy et al., 2019): a worker adds to its next gradient what compression removed from the last. Only
gradients are compressed, not the mean.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from testbed.replay.training import ELEMENT, Holes
from testbed.replay.training.layers import Array
from testbed.replay.training.mean import gathered

BITS, BLOCK = 4, 1024  # numbers of a block share a scale, a float32
SHARE = BITS / 8 / ELEMENT + 1 / BLOCK  # fraction of the bytes of an uncompressed gradient: 12.6 %
KEPT = SHARE / 2  # top-k: value and place, four bytes each
Compression = Callable[[Array], Array]


def largest(values: Array) -> Array:
    """The numbers that are largest by magnitude, `KEPT` of them; zeros elsewhere."""
    count = max(1, int(KEPT * len(values)))
    kept = np.argpartition(np.abs(values), -count)[-count:]
    result = np.zeros_like(values)
    result[kept] = values[kept]
    return result


def rounded(values: Array) -> Array:
    """Round every number to the nearest of 15 levels, evenly spaced up to the largest magnitude of its block."""
    padded = np.zeros(-(-len(values) // BLOCK) * BLOCK, np.float32)
    padded[: len(values)] = values
    blocks = padded.reshape(-1, BLOCK)
    step = np.abs(blocks).max(axis=1, keepdims=True) / (2 ** (BITS - 1) - 1)
    return np.asarray((np.rint(blocks / np.where(step, step, 1)) * step).reshape(-1)[: len(values)], np.float32)


class Compressed:
    """The mean of compressed gradients, with error feedback (a `testbed.models.learning.Mean`)."""

    def __init__(self, compression: Compression) -> None:
        self.compression = compression
        self.owed: list[Array] = []

    def __call__(self, gradients: Sequence[Array], holes: Sequence[Holes]) -> Array:
        owed = self.owed or [np.zeros_like(gradient) for gradient in gradients]
        wanted = [gradient + left for gradient, left in zip(gradients, owed, strict=True)]
        sent = [self.compression(one) for one in wanted]
        self.owed = [one - gone for one, gone in zip(wanted, sent, strict=True)]
        return gathered(sent, holes, [], "zero")

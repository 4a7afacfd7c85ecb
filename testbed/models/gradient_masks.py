"""Select packets to remove from gradients: a fraction of each worker's, sampled in each round from the candidates.

This tests the premise of MLT (NSDI 2024, section 3, and its tables of bounds): the effect of a loss depends on which
packets are lost. A packet's importance is the mean magnitude of its numbers; missing ranges are zeros, as published.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from testbed.replay.training import ELEMENT, Holes
from testbed.replay.training.layers import Array
from testbed.replay.training.mean import gathered

PACKET_BYTES = 1400
Chosen = npt.NDArray[np.int64]
Candidates = Callable[
    [npt.NDArray[np.float64]], Chosen
]  # from packets' mean magnitudes to the indices of removable packets


def anywhere(magnitudes: npt.NDArray[np.float64]) -> Chosen:
    """Return all packets."""
    return np.arange(len(magnitudes))


def unimportant(magnitudes: npt.NDArray[np.float64]) -> Chosen:
    """The lower half: what `testbed.transports.datagram.tags` calls unimportant by ``packet-median``."""
    return np.argsort(magnitudes, kind="stable")[: len(magnitudes) // 2]


def third(number: int) -> Candidates:
    """Return the candidates of one of three equal parts by magnitude, from the smallest, 0, to the largest, 2."""

    def candidates(magnitudes: npt.NDArray[np.float64]) -> Chosen:
        return np.array_split(np.argsort(magnitudes, kind="stable"), 3)[number]

    return candidates


def within(begin: int, end: int) -> Candidates:
    """Packets whose numbers begin in a range of the gradient: a layer."""

    def candidates(magnitudes: npt.NDArray[np.float64]) -> Chosen:
        at = np.arange(len(magnitudes)) * (PACKET_BYTES // ELEMENT)
        return np.flatnonzero((at >= begin) & (at < end))

    return candidates


@dataclass
class Dropped:
    """The mean of gradients of which a fraction of the ``candidates`` is missing (a `testbed.models.learning.Mean`).

    ``of_all``: the fraction refers to all packets instead of the candidates. If there are too few candidates, all of
    them are removed.
    """

    share: float
    candidates: Candidates
    seed: int
    of_all: bool = False

    def __post_init__(self) -> None:
        self._draw = np.random.default_rng(self.seed)

    def __call__(self, gradients: Sequence[Array], _holes: Sequence[Holes]) -> Array:
        return gathered(gradients, [self._lost(gradient) for gradient in gradients], [], "zero")

    def _lost(self, gradient: Array) -> Holes:
        numbers = PACKET_BYTES // ELEMENT
        begins = np.arange(0, len(gradient), numbers)
        magnitudes = np.add.reduceat(np.abs(gradient), begins, dtype=float) / np.diff([*begins, len(gradient)])
        may = self.candidates(magnitudes)
        asked = self.share * (len(magnitudes) if self.of_all else len(may))
        count = min(len(may), int(asked + self._draw.random()))  # random rounding: the mean is exactly the share
        gone = np.sort(self._draw.choice(may, count, replace=False))
        return [(int(at) * PACKET_BYTES, PACKET_BYTES) for at in gone]

"""The constants of SJF-BCO's equation 8, fitted to what iterations took beside others."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

ALPHAS = np.linspace(0.0, 10.0, 501)
XI1S = np.linspace(0.0, 1.0, 201)
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Cell:
    """Equal jobs on one uplink: what their iterations took."""

    p: int  # jobs
    ratio: float  # exchanging alone ÷ computing
    slowdown: float  # an iteration ÷ an iteration alone


@dataclass(frozen=True)
class Fit:
    """α and ξ1 of equations 7 and 8, f = k + α (k − 1) and k = ξ1 p, 1 at the least."""

    alpha: float
    xi1: float

    def slowdown(self, p: int, ratio: float) -> float:
        """What equation 8 says."""
        return float(_slowdown(np.array(self.alpha), np.array(self.xi1), p, ratio))

    def degradation(self, p: int) -> float:
        """f: of how many jobs an uplink shared by p looks like the fair share, to each of them."""
        return self.slowdown(p, np.inf)

    def error(self, cells: Sequence[Cell]) -> float:
        """How far it is off, as a share of what was measured, in the mean."""
        return float(np.mean([abs(self.slowdown(one.p, one.ratio) / one.slowdown - 1) for one in cells]))


def fit(cells: Sequence[Cell]) -> Fit:
    """The constants with the least squares of relative errors, on a grid: α from 0 to 10, ξ1 from 0 to 1."""
    alpha, xi1 = np.meshgrid(ALPHAS, XI1S, indexing="ij")
    errors = sum((_slowdown(alpha, xi1, one.p, one.ratio) / one.slowdown - 1) ** 2 for one in cells)
    best = np.unravel_index(int(np.argmin(errors)), alpha.shape)
    return Fit(float(alpha[best]), float(xi1[best]))


def _slowdown(alpha: Floats, xi1: Floats, p: int, ratio: float) -> Floats:
    k = np.maximum(1.0, xi1 * p)
    degradation = k + alpha * (k - 1)
    found: Floats = degradation if np.isinf(ratio) else (1 + ratio * degradation) / (1 + ratio)
    return found

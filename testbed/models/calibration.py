"""Fit the constants of SJF-BCO's equation 8 to iteration times of jobs that share links.

The cost of contention gives α and ξ1. The isolated time beyond computing and exchanging, by number of servers, gives
ξ2. Half of the cells is held out: the reported error is that of the fit to the others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from testbed.models.statistics import Estimate, mean

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
        """The prediction of equation 8."""
        return float(_slowdown(np.array(self.alpha), np.array(self.xi1), p, ratio))

    def degradation(self, p: int) -> float:
        """f: of how many jobs an uplink shared by p looks like the fair share, to each of them."""
        return self.slowdown(p, np.inf)

    def error(self, cells: Sequence[Cell]) -> float:
        """Return the mean relative error of the predicted slowdown over ``cells``."""
        return float(np.mean([abs(self.slowdown(cell.p, cell.ratio) / cell.slowdown - 1) for cell in cells]))


@dataclass(frozen=True)
class Took:
    """Jobs that differ only in their periods, over the uplinks of the same servers, from one seed."""

    seed: int
    p: int  # jobs
    servers: int  # that each spans
    ratio: float  # exchanging alone ÷ computing
    stretch: float  # iteration time ÷ isolated computing and exchanging time, mean over jobs
    beyond_s: float  # iteration time − computing and exchanging time


@dataclass(frozen=True)
class Calibration:
    """Equation 8's constants with their intervals over seeds, and how far it is off where it was not fitted."""

    alpha: Estimate
    xi1: Estimate
    xi2_s: Estimate
    error: Estimate  # in the mean of the held-out cells
    worst: float  # of them
    crowded: Estimate  # f for the most jobs there were
    fitted: int  # cells, and
    held_out: int


@dataclass(frozen=True)
class Halves:
    """The cells of one seed, and the constants fitted to the first half."""

    seed: int
    fitted: list[Cell]
    held_out: list[Cell]
    fit: Fit


def calibrate(took: Sequence[Took]) -> Calibration:
    """A separate fit for each seed; raises `ValueError` without data to fit to or to hold out."""
    most = max(one.p for one in took)
    halves = list(fitted(took))
    fits = [one.fit for one in halves]
    overheads = [_overhead_s([one for one in took if one.seed == half.seed and one.p == 1]) for half in halves]
    return Calibration(
        mean(one.alpha for one in fits), mean(one.xi1 for one in fits), mean(overheads), mean(one.fit.error(one.held_out) for one in halves),
        max(one.fit.error([cell]) for one in halves for cell in one.held_out), mean(one.degradation(most) for one in fits),
        len(halves[-1].fitted), len(halves[-1].held_out),
    )  # fmt: skip


def fitted(took: Sequence[Took]) -> Iterator[Halves]:
    """A fit for each seed; raises `ValueError` without data to fit to, or to hold out."""
    for seed in dict.fromkeys(one.seed for one in took):
        own = [one for one in took if one.seed == seed]
        alone = {(one.servers, one.ratio): one for one in own if one.p == 1}
        crowds = [one for one in own if one.p > 1 and (one.servers, one.ratio) in alone]
        held = _held_out(crowds)
        kept, out = (
            [Cell(crowd.p, crowd.ratio, crowd.stretch / alone[crowd.servers, crowd.ratio].stretch) for crowd in crowds if (crowd in held) == wanted]
            for wanted in (False, True)
        )  # fmt: skip
        if not kept or not out:
            raise ValueError("there are too few cells to fit to one half and to look at the other")
        yield Halves(seed, kept, out, fit(kept))


def _held_out(crowds: Sequence[Took]) -> list[Took]:
    """Like the black squares of a chessboard over p, ratio and servers."""
    axes = [sorted({key(crowd) for crowd in crowds}) for key in _AXES]
    return [crowd for crowd in crowds if sum(axis.index(key(crowd)) for axis, key in zip(axes, _AXES, strict=True)) % 2]


_AXES: tuple[Callable[[Took], float], ...] = (lambda one: one.p, lambda one: one.ratio, lambda one: one.servers)


def _overhead_s(alone: Sequence[Took]) -> float:
    """ξ2: seconds a server, by least squares through the origin; never below 0."""
    return max(0.0, sum(one.servers * one.beyond_s for one in alone) / sum(one.servers**2 for one in alone))


def fit(cells: Sequence[Cell]) -> Fit:
    """The constants with the least squares of relative errors, on a grid: α from 0 to 10, ξ1 from 0 to 1."""
    alpha, xi1 = np.meshgrid(ALPHAS, XI1S, indexing="ij")
    errors = sum((_slowdown(alpha, xi1, cell.p, cell.ratio) / cell.slowdown - 1) ** 2 for cell in cells)
    best = np.unravel_index(int(np.argmin(errors)), alpha.shape)
    return Fit(float(alpha[best]), float(xi1[best]))


def _slowdown(alpha: Floats, xi1: Floats, p: int, ratio: float) -> Floats:
    k = np.maximum(1.0, xi1 * p)
    degradation = k + alpha * (k - 1)
    found: Floats = degradation if np.isinf(ratio) else (1 + ratio * degradation) / (1 + ratio)
    return found

"""Solve for the drop thresholds of a port's priority queues, as the appendix of MLT (NSDI 2024) models them.

Each priority queue is modelled as two M/M/1/m queues: one of droppable packets, up to its threshold, and one of the
others, up to its capacity. Losses of each cost rounds of training; the thresholds minimise that cost. The paper gives
the program without its numbers and solution. Here SciPy solves it, with the numbers of the same paper's bounds.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.optimize import LinearConstraint, minimize

# Loss up to which a training needs no more rounds [published]: of front and back layers, of small and large gradients.
FRONT, BACK = 0.05, 0.003
SMALL, LARGE = 0.20, 0.004


@dataclass(frozen=True)
class Threshold:
    """The threshold of one band, in packets."""

    droppable: float  # queue length in packets from which droppable packets are dropped
    everything: float  # queue length in packets from which all packets are dropped


def lost(load: float, room: float) -> float:
    """Return the blocking probability of an M/M/1/m queue with offered ``load`` and ``room`` packets (a real number)."""
    if abs(load - 1) < 1e-9:
        return 1 / (room + 1)
    return float(load**room * (1 - load) / (1 - load ** (room + 1)))


def costs(bands: int) -> list[float]:
    """Rounds that a lost share costs in each band, the highest with the front layers first: 1 ÷ the bound, between both ends by equal factors."""
    return [float(one) for one in 1 / np.geomspace(FRONT, BACK, bands)] if bands > 1 else [1 / FRONT]


def rounds(found: list[Threshold], load: float, small: float) -> float:
    """The cost of all losses together; ``small``: the share of packets that may be dropped."""
    return sum(
        cost * (lost(load, small * one.droppable) / SMALL + lost(load, one.everything - small * one.droppable) / LARGE)
        for cost, one in zip(costs(len(found)), found, strict=True)
    )


def solve(bands: int, packets: int, load: float = 1.0, small: float = 0.5) -> list[Threshold]:
    """Return the threshold of each priority queue, the highest first, that minimises the rounds lost by a port of
    ``packets`` packets.

    Raises `ValueError` if each queue holds fewer than two packets.
    """
    if packets < 2 * bands:
        raise ValueError(f"{packets} packets are too few for {bands} bands")

    def cost(x: np.ndarray) -> float:  # relative to the initial cost; thresholds are relative to a band's share
        return rounds([Threshold(*one) for one in share * x.reshape(bands, 2)], load, small) / unit

    share = packets / bands
    unit = rounds([Threshold(share / 2, share)] * bands, load, small)
    begin = np.tile([0.5, 1.0], bands)
    total = np.tile([0.0, 1.0], bands)
    ordered = np.kron(np.eye(bands), [-1.0, 1.0])  # a threshold is at most the capacity of its queue
    found = minimize(
        cost, begin, method="SLSQP", bounds=[(1 / share, bands)] * (2 * bands), options={"maxiter": 1000, "ftol": 1e-11},
        constraints=[LinearConstraint(total, bands, bands), LinearConstraint(ordered, 0.0, np.inf)],
    )  # fmt: skip
    if not found.success:
        raise ValueError(f"no thresholds found for {bands} bands of {packets} packets: {found.message}")
    return [
        Threshold(float(droppable), float(everything)) for droppable, everything in share * found.x.reshape(bands, 2)
    ]

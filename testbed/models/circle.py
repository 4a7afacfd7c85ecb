"""Jobs on circles: CASSINI's geometric abstraction (NSDI 2024, arXiv 2308.00852).

Time is rolled onto a circle. On the *unified circle* of a link, whose perimeter is the least common multiple of the
jobs' iteration times, a job appears a whole number of times and always at the same angles; a delay rotates it. Circles
fit if there are rotations for which the jobs' demands never add up to more than the link. All demands are in units of
the link's capacity, averaged over an arc of one step, so that no phase falls between two angles.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import numpy.typing as npt

from testbed.core.errors import RequestError
from testbed.core.phase import Phase
from testbed.core.text import shown

Load = npt.NDArray[np.float64]

ANGLES = 72  # steps of 5 degrees, which the paper found best
MOST = 72  # iterations of a job on one circle that are tried
EXHAUSTED = 400_000  # partial rotations looked at: any five jobs at 5 degrees, and more that fit easily
EPSILON = 1e-9
_DEGREES = re.compile(r"\d{1,9}(\.\d{0,9})?|\d{1,9}/\d{1,9}")


@dataclass(frozen=True)
class Fit:
    """Rotations in steps, the first job's 0, and the excess they leave: summed over links and angles."""

    rotations: tuple[int, ...]
    excess: float


def unify(iterations_s: Sequence[float], count: int) -> tuple[float, tuple[int, ...]]:
    """Return a circle of ``count`` steps that closes for every job: its perimeter in s, and how many times each job is
    on it.

    The LCM exists only for multiples of a common unit, and measured times have none (the paper's rounding is not
    published). So iterations are stretched to perimeter ÷ times, never shortened, and of all circles this one costs the
    jobs least: the stretch plus half a step, both relative to an iteration. 40 and 60 ms give 120 ms exactly; 1.00 and
    1.04 s give 1.04 s, because 26 s would be too coarse in 72 steps.
    """
    found: list[tuple[float, float, tuple[int, ...]]] = []
    for perimeter in (n * one for one in iterations_s for n in range(1, MOST + 1)):
        times = tuple(math.floor(perimeter / one + EPSILON) for one in iterations_s)
        if min(times) > 0:
            stretch = max(perimeter / (n * one) for n, one in zip(times, iterations_s, strict=True)) - 1
            found.append((round(stretch + max(times) / count / 2, 9), perimeter, times))
    _, perimeter, times = min(found)
    return perimeter, times


def angles(text: str) -> int:
    """Return the number of steps of ``text`` degrees on a circle. Raises `ValueError`."""
    degrees = Fraction(text) if _DEGREES.fullmatch(text) else Fraction(0)  # an exponent could be of any size
    if not 0.5 <= degrees <= 90 or (360 / degrees).denominator != 1:
        raise ValueError(f"{shown(text)} degrees are not between 0.5 and 90, or do not divide a circle")
    return int(360 / degrees)


def demand(phases: Sequence[Phase], capacity_bps: float, iteration_s: float, times: int, count: int) -> Load:
    """A job that is ``times`` times on the circle: its mean demand on each of ``count`` arcs ÷ capacity."""
    corners = sorted(
        {0.0, iteration_s, *(min(t, iteration_s) for phase in phases for t in (phase.start_s, phase.end_s))}
    )
    rates = [
        sum(phase.bps for phase in phases if phase.start_s <= t < phase.end_s) / capacity_bps for t in corners[:-1]
    ]
    volume = np.concatenate([[0.0], np.cumsum(np.diff(corners) * rates)])
    edges = np.linspace(0, times * iteration_s, count + 1)
    whole, rest = np.divmod(edges, iteration_s)
    sent = whole * volume[-1] + np.interp(rest, corners, volume)
    return np.asarray(np.diff(sent) / (edges[1] - edges[0]))


def excess(total: Load) -> npt.NDArray[np.float64]:
    """Return the demand above the link's capacity in every row, summed over its angles (the last axis)."""
    return np.asarray(np.maximum(total - 1, 0).sum(axis=-1))


def score(total: Load) -> float:
    """Compatibility of jobs whose demands on a link add up to ``total``: 1 - mean excess; 1: they fit."""
    return 1 - float(excess(total)) / len(total)


def fit(demands: Sequence[Load], steps: Sequence[int]) -> Fit:
    """Return the rotations with the least excess, found exactly by branch and bound.

    ``demands``: for each job an array of links × angles. ``steps``: its number of rotations, which is the number of
    angles ÷ its number of occurrences on the circle. Job 0 keeps its rotation. For any rotations of the remaining jobs,
    the excess is at least the present one, and at least the total demand minus capacity. Raises `RequestError` after
    400 000 partial rotations.
    """
    order = [0, *sorted(range(1, len(demands)), key=lambda job: -float(demands[job].sum()))]
    turned = [_turns(demands[job], steps[job]) for job in order]
    volume = sum(one[0].sum(axis=-1) for one in turned)
    room = demands[0].shape[-1]
    least = float(np.maximum(volume - room, 0).sum())
    best, best_excess, looked_at = [0] * len(order), math.inf, 0

    def descend(chosen: list[int], total: Load) -> None:
        nonlocal best, best_excess, looked_at
        if len(chosen) == len(order):
            best, best_excess = chosen, float(excess(total).sum())
            return
        looked_at += 1
        if looked_at > EXHAUSTED:
            raise RequestError(
                f"{len(order)} jobs on one link have more rotations than an exact search can evaluate "
                f"({EXHAUSTED} partial ones were tried). Use larger steps, such as cassini:step=10."
            )
        totals = total + turned[len(chosen)]
        bounds = np.maximum(excess(totals), volume - room).sum(axis=-1)
        for rotation in np.argsort(bounds, kind="stable"):
            if bounds[rotation] >= best_excess - EPSILON or best_excess <= least + EPSILON:
                return
            descend([*chosen, int(rotation)], totals[rotation])

    descend([0], turned[0][0])
    rotations = [0] * len(order)
    for job, rotation in zip(order, best, strict=True):
        rotations[job] = rotation
    return Fit(_apart(demands, steps, rotations, best_excess), best_excess)


def turn(load: Load, rotation: int) -> Load:
    """``load`` delayed by so many steps."""
    return np.roll(load, rotation, axis=-1)


def _turns(load: Load, steps: int) -> Load:
    return np.stack([turn(load, rotation) for rotation in range(steps)])


def _apart(demands: Sequence[Load], steps: Sequence[int], rotations: list[int], allowed: float) -> tuple[int, ...]:
    """Return equally good rotations with space on both sides of every job: each moves to the middle of its possible
    range.

    An addition of the testbed. The paper leaves open which of several best rotations is used; without space between
    them, every delay would be a collision.
    """
    total = np.sum([turn(one, by) for one, by in zip(demands, rotations, strict=True)], axis=0)
    for _ in range(max(steps)):
        before = list(rotations)
        for job in range(1, len(demands)):
            others = total - turn(demands[job], rotations[job])
            good = excess(others + _turns(demands[job], steps[job])).sum(axis=-1) <= allowed + EPSILON
            if not good.all():
                ahead = next(n for n in range(len(good)) if not good[(rotations[job] + n + 1) % len(good)])
                behind = next(n for n in range(len(good)) if not good[(rotations[job] - n - 1) % len(good)])
                rotations[job] = (rotations[job] + int((ahead - behind) / 2)) % len(good)
            total = others + turn(demands[job], rotations[job])
        if rotations == before:
            break
    return tuple(rotations)

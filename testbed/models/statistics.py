"""Confidence intervals over seeds, by SciPy: a number over seeds is never without its spread.

Which interval, was decided by simulated coverage (benchmarks/coverage.py; tests/unit/models/test_statistics.py). Seeds are few. With
three of them the bootstrap (percentile or BCa) covers the mean of a normal distribution in 71–74 % of cases, with five in
85 %, with ten in 91 %, since its resamples cannot vary more than the sample did; Student's t covers 95 %. For a skewed one
(exponential) t covers 87–93 %, BCa 70–91 %. So it is Student's t below `BOOTSTRAP_FROM` seeds; from there on both cover
equally often, and BCa follows the skew. Neither covers events that no seed has shown: an event in one run of five is missing from
five seeds in every third experiment.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import sqrt
from typing import TypeVar

import numpy as np
import numpy.typing as npt
import scipy  # `stats` is most of it, and is imported on first use

FEWEST_SEEDS = 3
BOOTSTRAP_FROM = 50
RESAMPLES = 9999
LEVEL = 0.95

Interval = tuple[float, float]
Seed = TypeVar("Seed")


@dataclass(frozen=True)
class Estimate:
    """A number over ``n`` seeds and its 95 % interval (None below three seeds)."""

    value: float
    interval: Interval | None
    n: int

    def __str__(self) -> str:
        if self.interval is None:
            return f"{_digits(self.value)} (n = {self.n}, no interval)"
        return f"{_digits(self.value)} ({_digits(self.interval[0])}–{_digits(self.interval[1])})"


def _digits(value: float) -> str:
    """Three of them, zeros too; a minus that is no dash."""
    return f"{value:#.3g}".rstrip(".").replace("-", "−")


def interval(values: Iterable[float]) -> Interval | None:
    """95 % interval of the mean; None below three values. Equal values give an interval without width."""
    data = np.asarray(list(values), dtype=float)
    if len(data) < FEWEST_SEEDS or not np.isfinite(data).all():
        return None
    if np.ptp(data) == 0:
        return float(data[0]), float(data[0])
    if len(data) < BOOTSTRAP_FROM:
        found = scipy.stats.t.interval(LEVEL, len(data) - 1, data.mean(), scipy.stats.sem(data))
    else:
        found = scipy.stats.bootstrap(
            (data,), np.mean, n_resamples=RESAMPLES, confidence_level=LEVEL, method="BCa", rng=np.random.default_rng(0)
        ).confidence_interval
    low, high = float(found[0]), float(found[1])
    return (low, high) if np.isfinite([low, high]).all() else None


def by_cell(cells: Iterable[Sequence[float]]) -> Estimate:
    """Mean over cells of each cell's mean, with ``n`` cells: a cell with many seeds counts no more than one with few.

    The interval is over cells. With fewer than three cells, it is over seeds, whose spread around their cell's mean is pooled.
    """
    found = [list(values) for values in cells]
    means = [float(np.mean(values)) for values in found]
    if len(found) >= FEWEST_SEEDS:
        return mean(means)
    value, free = float(np.mean(means)), sum(map(len, found)) - len(found)
    if free < FEWEST_SEEDS - 1:
        return Estimate(value, None, len(found))
    off = np.concatenate([np.asarray(values) - center for values, center in zip(found, means, strict=True)])
    error = sqrt(float((off**2).sum()) / free * sum(1 / len(values) for values in found)) / len(found)
    reach = float(scipy.stats.t.ppf((1 + LEVEL) / 2, free)) * error
    return Estimate(value, (value - reach, value + reach), len(found))


def ends(values: Sequence[float]) -> Interval:
    """Return the confidence interval of the mean or, for too few values, the smallest and the largest: the range that
    a criterion must beat."""
    return interval(values) or (min(values), max(values))


def geometric_mean(values: Iterable[float]) -> float:
    """The geometric mean of ratios: it is the same for a ratio and its inverse."""
    return float(np.exp(np.mean(np.log(list(values)))))


def ratio_ends(values: Sequence[float]) -> Interval:
    """Return `ends` for ratios, with the interval computed from logarithms."""
    return log_interval(values) or (min(values), max(values))


def estimate_ratio(values: Iterable[float]) -> Estimate:
    """The geometric mean of ratios over seeds."""
    data = list(values)
    return Estimate(geometric_mean(data), log_interval(data), len(data))


def log_interval(values: Iterable[float]) -> Interval | None:
    """95 % interval of the geometric mean of positive values, by their logarithms: for ratios."""
    found = interval(np.log(list(values)))
    return None if found is None else (float(np.exp(found[0])), float(np.exp(found[1])))


def mean(values: Iterable[float]) -> Estimate:
    """The mean over seeds."""
    data = list(values)
    return Estimate(float(np.mean(data)), interval(data), len(data))


def ratio(first: Mapping[Seed, float], second: Mapping[Seed, float]) -> Estimate:
    """``first`` ÷ ``second``, paired by seed: geometric mean over the seeds that both have; raises `ValueError` if none."""
    ratios = [a / b for a, b in pairs(first, second)]
    if not ratios:
        raise ValueError("no seed is in both")
    return estimate_ratio(ratios)


def pairs(first: Mapping[Seed, float], second: Mapping[Seed, float]) -> list[tuple[float, float]]:
    """The values of the seeds that both have."""
    return [(value, second[seed]) for seed, value in first.items() if seed in second]


def ratio_of_independent(first: Sequence[float], second: Sequence[float]) -> Estimate:
    """``first`` ÷ ``second`` of seeds that do not match: geometric means, their interval by Welch's t of the logarithms."""
    a, b = np.log(first), np.log(second)
    value = float(np.exp(a.mean() - b.mean()))
    n = min(len(a), len(b))
    if n < FEWEST_SEEDS:
        return Estimate(value, None, n)
    if np.ptp(a) == 0 and np.ptp(b) == 0:
        return Estimate(value, (value, value), n)
    found = scipy.stats.ttest_ind(a, b, equal_var=False).confidence_interval(LEVEL)
    return Estimate(value, (float(np.exp(found.low)), float(np.exp(found.high))), n)


def proportion(count: int, n: int) -> Estimate:
    """``count`` of ``n``, with Wilson's interval (it holds at 0 and at n, too)."""
    if n == 0:
        raise ValueError("a proportion of nothing")
    if n < FEWEST_SEEDS:
        return Estimate(count / n, None, n)
    found = scipy.stats.binomtest(count, n).proportion_ci(LEVEL, method="wilson")
    return Estimate(count / n, (float(found.low), float(found.high)), n)


def median(values: Iterable[float]) -> Estimate:
    """The median, infinities (never) included, with the interval between two order statistics that holds for any
    distribution; None below six values, of which not even the extremes cover 95 %."""
    data = np.sort(np.asarray(list(values), dtype=float))
    n = len(data)
    with np.errstate(invalid="ignore"):
        middle = data[(n - 1) // 2] if data[(n - 1) // 2] == data[n // 2] else (data[(n - 1) // 2] + data[n // 2]) / 2
    below = int(scipy.stats.binom.ppf((1 - LEVEL) / 2, n, 0.5))  # number of values that may be cut off at each end
    covered = below > 0
    return Estimate(float(middle), (float(data[below - 1]), float(data[n - below])) if covered else None, n)


def cliffs_delta(first: Sequence[float], second: Sequence[float]) -> float:
    """Effect size: how much more often a value of ``first`` is above one of ``second`` than below; −1…1, 0: no difference."""
    a, b = np.asarray(first)[:, None], np.asarray(second)[None, :]
    return float(np.sign(a - b).mean())


def ecdf(values: npt.ArrayLike) -> tuple[np.ndarray, np.ndarray]:
    """Sorted values, and the share of values at or below each."""
    data = np.sort(np.asarray(values, dtype=float))
    return data, np.arange(1, len(data) + 1) / len(data)

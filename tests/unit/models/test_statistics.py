"""Intervals by hand and by simulated coverage; effect sizes by hand."""

from __future__ import annotations

from collections.abc import Callable
from math import inf, log, sqrt

import numpy as np
import pytest

from testbed.models import statistics

Draw = Callable[[np.random.Generator, int], np.ndarray]


def normal(draw: np.random.Generator, n: int) -> np.ndarray:
    return draw.normal(1, 1, n)


def skewed(draw: np.random.Generator, n: int) -> np.ndarray:
    return draw.exponential(1, n)


def coverage(sample: Draw, n: int, times: int) -> float:
    """How often the interval of ``n`` values holds the true mean, 1."""
    draw = np.random.default_rng(n)
    found = [statistics.interval(sample(draw, n)) for _ in range(times)]
    return sum(low <= 1 <= high for low, high in filter(None, found)) / times


@pytest.mark.parametrize("n", [3, 5, 10, 20, 40])
def test_of_few_normal_seeds_the_interval_covers_what_it_says(n: int) -> None:
    times = 2000
    assert abs(coverage(normal, n, times) - 0.95) < 4 * sqrt(0.95 * 0.05 / times)  # Student's t is exact there


@pytest.mark.parametrize(("n", "low", "high"), [(3, 0.84, 0.93), (5, 0.84, 0.93), (10, 0.88, 0.95)])
def test_of_skewed_seeds_it_covers_less(n: int, low: float, high: float) -> None:
    """Known undercoverage: 0.87–0.92 (benchmarks/coverage.py), ± 4 standard errors of 2000 samples."""
    assert low < coverage(skewed, n, 2000) < high


@pytest.mark.parametrize(("sample", "low"), [(normal, 0.90), (skewed, 0.89)])
def test_the_bootstrap_takes_over_where_it_covers(sample: Draw, low: float) -> None:
    """BCa of 50 values covers 0.94 (normal) and 0.93 (exponential); 400 samples, 4 standard errors below that, or less."""
    assert low < coverage(sample, statistics.BOOTSTRAP_FROM, 400) < 0.985


def test_students_interval_by_hand() -> None:
    # mean 2, s = 1, n = 3: t(0.975, 2) = 4.3027, half width 4.3027 / √3
    assert statistics.interval([1, 2, 3]) == pytest.approx((2 - 2.4841, 2 + 2.4841), abs=1e-4)


def test_no_interval_below_three_or_of_infinities() -> None:
    assert statistics.interval([1, 2]) is None
    assert statistics.interval([1, 2, inf]) is None
    assert statistics.interval([2, 2, 2]) == (2, 2)


def test_a_ratio_is_paired_by_seed_and_geometric() -> None:
    found = statistics.ratio({1: 2.0, 2: 8.0, 3: 4.0, 9: 1.0}, {1: 1.0, 2: 2.0, 3: 2.0, 7: 5.0})
    assert found.n == 3
    assert found.value == pytest.approx((2 * 4 * 2) ** (1 / 3))
    logs = [log(2), log(4), log(2)]
    low, high = statistics.interval(logs) or (0, 0)
    assert found.interval == pytest.approx((np.exp(low), np.exp(high)))
    with pytest.raises(ValueError, match="no seed"):
        statistics.ratio({1: 1.0}, {2: 1.0})


def test_pairing_takes_out_what_the_seeds_share() -> None:
    """Seeds that differ by a factor of 100, a ratio that differs by 1 %."""
    first = {seed: 10.0**seed * (1 + 0.001 * seed) for seed in range(5)}
    second = {seed: 10.0**seed for seed in range(5)}
    low, high = statistics.ratio(first, second).interval or (0, 9)
    assert 1 < low < high < 1.005
    apart = statistics.ratio_of_independent(list(first.values()), list(second.values())).interval or (0, 0)
    assert apart[0] < 0.1 and apart[1] > 10


def test_a_proportion_has_an_interval_at_its_ends() -> None:
    low, high = statistics.proportion(10, 10).interval or (0, 0)
    assert (low, high) == pytest.approx((1 / (1 + 1.96**2 / 10), 1), abs=1e-3)  # Wilson, by hand


def test_a_median_may_be_never() -> None:
    assert statistics.median([3, 1, inf]).value == 3
    assert statistics.median([3, inf, inf]).value == inf
    assert statistics.median([1, inf]).value == inf
    assert statistics.median([1.0, 2.0]).value == 1.5
    assert statistics.median(range(5)).interval is None
    assert statistics.median(range(6)).interval == (0, 5)  # covers 1 − 2/64
    assert statistics.median(range(20)).interval == (5, 14)  # the 6th and the 15th, as in tables of the sign test


def test_cliffs_delta() -> None:
    assert statistics.cliffs_delta([2, 3], [0, 1]) == 1
    assert statistics.cliffs_delta([0, 1], [0, 1]) == 0
    assert statistics.cliffs_delta([1, 2], [2, 3]) == pytest.approx(-0.75)


def test_an_estimate_never_stands_without_its_spread() -> None:
    assert str(statistics.mean([1, 2, 3])) == "2.00 (−0.484–4.48)"
    assert str(statistics.mean([1, 2])) == "1.50 (n = 2, no interval)"


def test_a_cell_with_many_seeds_counts_no_more_than_one_with_few() -> None:
    easy, hard, harder = [1.0] * 45, [6.0] * 5, [8.0, 8.0]
    found = statistics.by_cell([easy, hard, harder])
    assert (found.value, found.n) == (pytest.approx(5.0), 3)
    alone = statistics.by_cell([hard])
    assert (alone.value, alone.interval) == (6.0, (6.0, 6.0))
    both = statistics.by_cell([[1.0, 2.0, 3.0, 9.0], [3.0, 4.0, 5.0]])
    assert both.value == pytest.approx((3.75 + 4) / 2) and both.interval is not None
    assert both.interval[0] < both.value < both.interval[1]
    same = statistics.by_cell([[1.0, 2.0, 4.0]])
    assert same.interval == pytest.approx(statistics.interval([1.0, 2.0, 4.0]))
    assert statistics.by_cell([[1.0, 2.0], [2.0]]).interval is None

"""Confidence intervals over seeds, by SciPy's bootstrap."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from scipy import stats

FEWEST_SEEDS = 3
RESAMPLES = 9999


def ci95(values: list[float], statistic: Callable[..., float] = np.mean) -> list[float] | None:
    """95 % bootstrap interval (BCa where defined) of a statistic over seeds; None below 3 seeds."""
    if len(values) < FEWEST_SEEDS:
        return None
    data = np.asarray(values)
    if np.ptp(data) == 0:
        return [float(data[0])] * 2
    interval = stats.bootstrap(
        (data,), statistic, n_resamples=RESAMPLES, method="BCa", vectorized=False, rng=np.random.default_rng(0)
    ).confidence_interval
    low, high = float(interval.low), float(interval.high)
    return [low, high] if np.isfinite([low, high]).all() else None


def interval(values: list[float]) -> tuple[float, float] | None:
    """95 % confidence interval of the mean over seeds; None below 3 seeds."""
    found = ci95(values)
    return None if found is None else (found[0], found[1])

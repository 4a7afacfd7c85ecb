#!/usr/bin/env python3
"""How often 95 % intervals of a mean hold it, by method, number of seeds and distribution: the table of docs/reproducing.md."""

from __future__ import annotations

import warnings
from collections.abc import Callable

import numpy as np
from scipy import stats

SAMPLES, RESAMPLES = 1000, 999
Interval = tuple[float, float]


def percentile(data: np.ndarray, draw: np.random.Generator) -> Interval:
    means = data[draw.integers(0, len(data), (RESAMPLES, len(data)))].mean(axis=1)
    low, high = np.quantile(means, [0.025, 0.975])
    return float(low), float(high)


def bca(data: np.ndarray, draw: np.random.Generator) -> Interval:
    found = stats.bootstrap((data,), np.mean, n_resamples=RESAMPLES, method="BCa", rng=draw).confidence_interval
    return float(found.low), float(found.high)


def student(data: np.ndarray, _draw: np.random.Generator) -> Interval:
    low, high = stats.t.interval(0.95, len(data) - 1, data.mean(), stats.sem(data))
    return float(low), float(high)


def main() -> None:
    warnings.simplefilter("ignore")
    draw = np.random.default_rng(1)
    distributions: dict[str, Callable[[int], np.ndarray]] = {
        "normal": lambda n: draw.normal(1, 1, n),
        "exponential": lambda n: draw.exponential(1, n),
    }
    methods = {"percentile bootstrap": percentile, "BCa bootstrap": bca, "Student's t": student}
    print(f"{'seeds':>5}  {'distribution':12}" + "".join(f"{name:>22}" for name in methods))
    for name, sample in distributions.items():
        for n in (3, 5, 10, 20):
            inside = dict.fromkeys(methods, 0)
            for _ in range(SAMPLES):
                data = sample(n)
                for method, interval in methods.items():
                    low, high = interval(data, draw)
                    inside[method] += low <= 1 <= high
            print(f"{n:5}  {name:12}" + "".join(f"{count / SAMPLES:22.2f}" for count in inside.values()), flush=True)


if __name__ == "__main__":
    main()

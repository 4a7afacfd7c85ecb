#!/usr/bin/env python3
"""Coverage of 95 % intervals of a mean, by method, number of seeds and distribution: the tables of
docs/explanation/statistics.md."""

from __future__ import annotations

import warnings
from collections.abc import Callable

import numpy as np
from scipy import stats

SAMPLES, RESAMPLES, ITERATIONS = 1000, 999, 50
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


def settled(draw: np.random.Generator, seeds: int, scale: float) -> np.ndarray:
    """Iteration times of some seeds, a row each: seeds differ by 2 %, iterations have a tail."""
    own = np.exp(draw.normal(0, 0.02, (seeds, 1)))
    return np.asarray(scale * own * (1 + draw.exponential(0.15, (seeds, ITERATIONS))))


def log_p99(times: np.ndarray) -> float:
    return float(np.log(np.percentile(times, 99)))


def around(value: float, by_seed: np.ndarray) -> Interval:
    """Student's t of ``by_seed``, with ``value`` in the middle."""
    half = stats.t.ppf(0.975, len(by_seed) - 1) * stats.sem(by_seed)
    return float(value - half), float(value + half)


def of_p99s(base: np.ndarray, other: np.ndarray, draw: np.random.Generator) -> dict[str, Interval]:
    """Intervals of the logarithm of a ratio of 99th percentiles, by method."""
    seeds = len(base)
    by_seed = np.array([log_p99(b) - log_p99(o) for b, o in zip(base, other, strict=True)])
    pooled = log_p99(base) - log_p99(other)
    without = [log_p99(np.delete(base, i, 0)) - log_p99(np.delete(other, i, 0)) for i in range(seeds)]
    pseudo = seeds * pooled - (seeds - 1) * np.array(without)
    resampled = [log_p99(base[i]) - log_p99(other[i]) for i in draw.integers(0, seeds, (200, seeds))]
    low, high = np.quantile(resampled, [0.025, 0.975])
    return {
        "t of seeds": around(by_seed.mean(), by_seed), "t around the pooled": around(pooled, by_seed),
        "jackknife": around(pseudo.mean(), pseudo), "bootstrap of seeds": (float(low), float(high)),
    }  # fmt: skip


def tails(draw: np.random.Generator) -> None:
    """The second table: a ratio of 99th percentiles."""
    many = 4000
    truth = log_p99(settled(draw, many, 1.4)) - log_p99(settled(draw, many, 1.0))
    for seeds in (3, 5, 10, 20):
        inside: dict[str, int] = {}
        for _ in range(SAMPLES):
            for method, (low, high) in of_p99s(settled(draw, seeds, 1.4), settled(draw, seeds, 1.0), draw).items():
                inside[method] = inside.get(method, 0) + (low <= truth <= high)
        print(
            f"{seeds:5}  " + "".join(f"{name}: {count / SAMPLES:.2f}  " for name, count in inside.items()), flush=True
        )


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
    print("ratio of 99th percentiles")
    tails(draw)


if __name__ == "__main__":
    main()

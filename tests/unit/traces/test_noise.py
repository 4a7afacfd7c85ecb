"""Noise of compute times: kinds, what they add up to, who draws what."""

from __future__ import annotations

import random
from statistics import fmean, stdev

import pytest
from hypothesis import given
from hypothesis import strategies as st

from testbed.core.units import UnitError
from testbed.traces import noise


def factors(text: str, rank: int = 0, workers: int = 4, count: int = 20_000) -> list[float]:
    kind, draw = noise.Noise(text), random.Random("noise")
    return [noise.factor(kind, draw, rank, workers) for _ in range(count)]


@pytest.mark.parametrize("text", ["10%", "normal:10%", "lognormal:10%"])
def test_mean_one_and_the_spread_asked_for(text: str) -> None:
    values = factors(text)
    assert fmean(values) == pytest.approx(1, abs=0.003)
    assert stdev(values) == pytest.approx(0.1, rel=0.03)
    assert values == factors(text, rank=3)  # all workers of a job alike


def test_stragglers_are_few_single_and_heavy_tailed() -> None:
    by_rank = [factors("stragglers:4%", rank) for rank in range(4)]
    slow = [[value for value in values if value > 1] for values in by_rank]
    assert sum(map(len, slow)) == pytest.approx(0.04 * 20_000, rel=0.15)
    assert all(sum(value > 1 for value in one) <= 1 for one in zip(*by_rank, strict=True))
    assert max(map(max, slow)) == noise.SLOWEST
    assert set(factors("stragglers:0%")) == {1.0}


@pytest.mark.parametrize("text", ["5", "pink:5%", ":5%x", "", "200%", "normal:"])
def test_what_is_no_noise(text: str) -> None:
    with pytest.raises(UnitError):
        noise.Noise(text)


@given(amount=st.floats(0, 1), kind=st.sampled_from(noise.KINDS), seed=st.integers())
def test_never_negative(amount: float, kind: str, seed: int) -> None:
    draw = random.Random(seed)
    assert all(noise.factor(noise.Noise(f"{kind}:{amount:.9f}"), draw, 0, 2) >= 0 for _ in range(20))

"""Equation 8's constants, found again in what was made of them."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest

from testbed.core.errors import RequestError
from testbed.core.placing import Request
from testbed.models.calibration import Cell, Fit, Took, calibrate, fit
from testbed.models.contention import Model
from testbed.report import calibration

GRID = [(p, ratio) for p in (2, 3, 4, 5) for ratio in (0.25, 0.5, 1.0)]


@pytest.mark.parametrize(("alpha", "xi1"), [(0.3, 1.0), (0.0, 0.6), (0.1, 0.35), (0.0, 0.0)])
def test_constants_are_found_again(alpha: float, xi1: float) -> None:
    truth = Fit(alpha, xi1)
    cells = [Cell(p, ratio, truth.slowdown(p, ratio)) for p, ratio in GRID]
    found = fit(cells[::2])
    assert found.error(cells[1::2]) < 0.01
    if xi1 > 0.5:
        assert (found.alpha, found.xi1) == (pytest.approx(alpha, abs=0.02), pytest.approx(xi1, abs=0.02))


def test_it_is_equation_8() -> None:
    """10 ms of computing, 10 ms of exchange alone (a ring of two: m bytes each way)."""
    model, job = Model(1e9, alpha=0.3, xi1=0.8), Request(0, 2, 1, 1_250_000, 0.010)
    for p in (1, 2, 5):
        assert Fit(0.3, 0.8).slowdown(p, 1.0) == pytest.approx(model.tau_s(job, 2, p) / model.tau_s(job, 2, 1))
    assert Fit(0.3, 1.0).degradation(4) == pytest.approx(4 + 0.3 * 3) and Fit(0.3, 0.1).degradation(4) == 1


def test_noise_is_averaged_out_and_the_error_tells_of_it() -> None:
    draw, truth = random.Random(1), Fit(0.2, 0.7)
    cells = [Cell(p, ratio, truth.slowdown(p, ratio) * draw.uniform(0.9, 1.1)) for p, ratio in GRID * 5]
    assert 0.03 < fit(cells).error(cells) < 0.07
    assert fit(cells).degradation(5) == pytest.approx(truth.degradation(5), rel=0.1)


def took(truth: Fit, overhead_s: float = 0.0, seeds: int = 3, most: int = 5) -> list[Took]:
    """What equation 8 says of every cell, computing 10 ms."""
    draw = random.Random(2)
    return [
        Took(seed, p, servers, ratio, truth.slowdown(p, ratio) * draw.uniform(0.99, 1.01), overhead_s * servers)
        for seed in range(seeds) for p in range(1, most + 1) for servers in (2, 3, 4) for ratio in (0.25, 0.5, 1.0)
    ]  # fmt: skip


def test_constants_come_with_intervals_and_an_error_where_they_were_not_fitted() -> None:
    found = calibrate(took(Fit(0.2, 0.9), overhead_s=30e-6))
    assert found.fitted + found.held_out == 4 * 3 * 3 and abs(found.fitted - found.held_out) <= 1
    for estimate, truth in ((found.alpha, 0.2), (found.xi1, 0.9), (found.xi2_s, 30e-6)):
        assert estimate.n == 3 and estimate.value == pytest.approx(truth, rel=0.2)
    assert found.error.value < 0.02 and found.worst < 0.05
    assert (
        found.crowded.interval is not None
        and found.crowded.interval[0] <= 4.5 + 0.2 * 3.5 <= found.crowded.interval[1] + 0.1
    )


def test_what_is_no_such_contention_is_told_by_the_error() -> None:
    cells = [replace(one, stretch=3.0 if one.p == 2 else one.stretch) for one in took(Fit(0.0, 1.0))]
    assert calibrate(cells).error.value > 0.1


def test_an_overhead_below_nothing_is_none() -> None:
    assert calibrate(took(Fit(0.2, 0.9), overhead_s=-1e-6)).xi2_s.value == 0


def test_what_it_says_of_each_cell_is_drawn_and_written(tmp_path: Path) -> None:
    calls = {"reno": took(Fit(0.2, 0.9)), "mltcp_reno": took(Fit(0.1, 0.6))}
    assert [path.name for path in calibration.draw(calls, tmp_path / "out")] == ["calibration.png", "calibration.pdf", "calibration.csv"]  # fmt: skip
    table = pd.read_csv(tmp_path / "out/calibration.csv")
    assert len(table) == 2 * 3 * 4 * 3 * 3 and set(table["system"]) == set(calls)
    for system, own in calls.items():
        held = table[table["held_out"] & (table["system"] == system)]
        error = (held["foretold"] / held["slowdown"] - 1).abs().groupby(held["seed"]).mean().mean()
        assert error == pytest.approx(calibrate(own).error.value, rel=1e-3)
    (tmp_path / "file").write_text("")
    with pytest.raises(RequestError, match="--figures"):
        calibration.draw(calls, tmp_path / "file")


def test_too_few_cells() -> None:
    with pytest.raises(ValueError, match="too few cells"):
        calibrate(took(Fit(0.2, 0.9), most=1))

"""I10: what an experiment's seeds say, from five on."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from testbed import spec
from testbed.campaign.seed_variation import repeatability
from testbed.campaign.summary import summarise
from testbed.core.runs.load import load_experiment
from testbed.core.runs.plan import Plan
from tests.support import synthetic


@pytest.mark.parametrize(
    ("last10_mean_s", "status"),
    [
        ([1.0, 1.1, 0.9, 1.0], "not applicable"),
        ([1.0] * 5, "ok"),
        ([1.00, 1.02, 0.98, 1.01, 0.99], "ok"),  # ± 2 %
        ([1.0, 1.1, 0.9, 1.05, 0.95], "suspect"),  # ± 10 %
        ([1.0, 1.4, 0.6, 1.2, 0.8], "invalid"),  # ± 39 %
    ],
)
def test_the_interval_judges_from_five_seeds_on(last10_mean_s: Sequence[float], status: str) -> None:
    assert repeatability(last10_mean_s).status == status


@pytest.mark.parametrize(("spread", "verdict"), [(0.01, "valid"), (0.1, "suspect"), (0.4, "invalid")])
def test_an_experiment_is_as_good_as_its_seeds(tmp_path: Path, spread: float, verdict: str) -> None:
    found = spec.read(None, {"jobs": 2, "iterations": 12, "system": ["reno"], "seeds": 5, "name": "five"})

    def times(plan: Plan, iteration: int) -> float:
        return 1.0 + spread * (plan.seed - 3) / 2

    synthetic.write([found], tmp_path, times)
    summary = summarise(load_experiment(tmp_path / "five"))
    (result,) = summary.results
    assert result.repeatability is not None and result.repeatability.id == "I10"
    assert summary.verdict == verdict

"""Tails and marking thresholds: what invented runs come to."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

from testbed.core.runs.plan import Plan
from testbed.report import figures
from testbed.report.study import load_study
from tests.support import synthetic


def slow_base(one: Plan, _iteration: int) -> float:
    """Reno takes four times the ideal, what the placebo has too; F takes the ideal."""
    return 1.0 if one.system.role == "treatment" and one.system.congestion[0].preset != "placebo" else 4.0


@pytest.mark.parametrize(("id", "table", "gain"), [("tail", "tail-p99", "value"), ("frames", "frames-gains", "gain")])
def test_gains_are_told_by_arm(id: str, table: str, gain: str, tmp_path: Path) -> None:
    synthetic.experiment(id, tmp_path / "results", slow_base)
    figures.find(id).draw(load_study(tmp_path / "results", id), tmp_path / "out")
    found = pd.read_csv(tmp_path / "out" / f"{table}.csv")
    by_arm = found.groupby("arm")[gain].mean()
    assert by_arm["paper"] == pytest.approx(4.0) and by_arm["recommended"] == pytest.approx(4.0)
    assert by_arm["placebo"] == pytest.approx(1.0)
    assert (found["frames"] > 0).all()
    if id == "tail":
        assert set(found["long_jobs"]) == {20} and set(found["duty"]) == {0.5} and (found["seeds"] == 3).all()

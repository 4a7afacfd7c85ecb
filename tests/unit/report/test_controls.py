"""What claims are about, taken away: none of them is reproduced. The kernel's own control is the arm placebo (experiments/arms.toml)."""

from __future__ import annotations

from pathlib import Path

import pytest

from testbed.core.runs.plan import Plan
from testbed.report.claims import Claim
from tests.support import synthetic
from tests.support.claimed import graded


def alike(_one: Plan, _iteration: int) -> float:
    """Every system takes 1.4 times the ideal."""
    return 1.4


def asks_for_a_gain(claim: Claim) -> bool:
    """Not: that something does no harm."""
    return claim.claimed is not None or claim.above is not None or claim.measure.average == "every"


@pytest.mark.parametrize("id", ["cdf-reno", "partial", "stragglers", "circular", "patterns", "edges"])
def test_without_a_gain_no_gain_is_reproduced(id: str, tmp_path: Path) -> None:
    synthetic.experiment(id, tmp_path / "results", alike)
    found = graded(id, tmp_path / "results", tmp_path / "out")
    asked = [one for one in found.values() if asks_for_a_gain(one.claim) and one.case is not None]
    assert not [one.claim.id for one in asked if one.verdict in ("reproduced", "partly")]

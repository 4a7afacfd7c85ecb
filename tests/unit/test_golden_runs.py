"""Run directories of earlier formats still load, and say what they said."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from core.runs.load import load_experiment
from testbed.campaign.summary import summarise

RUNS = Path(__file__).parents[1] / "data" / "runs"
TIMES = ("mean_s", "p99_s", "steady_s", "ideal_s")
COUNTS = ("interleaved_at", "learned_at")


@pytest.mark.parametrize("folder", sorted(RUNS.glob("v*/*/")), ids=lambda folder: f"{folder.parent.name}-{folder.name}")
def test_they_are_summed_up_as_they_were(folder: Path) -> None:
    stored = json.loads((folder / "summary.json").read_text())
    summary = summarise(load_experiment(folder))
    assert summary["verdict"] == stored["verdict"] == "valid"
    for now, before in zip(summary["results"], stored["results"], strict=True):
        assert {key: now[key] for key in TIMES} == pytest.approx({key: before[key] for key in TIMES}, rel=1e-12)
        assert {key: now[key] for key in COUNTS} == {key: before[key] for key in COUNTS}

"""A recording of real training replays in the time that its steps took."""

from __future__ import annotations

from pathlib import Path
from statistics import median

import pytest

import testbed
from testbed.traces import recording
from testbed.traces.trace import save
from testbed.traces.trace_builder import Description, trace_from

GLOO = Path(__file__).parents[2] / "data" / "recording" / "gloo"
SKIPPED = 2


def test_two_processes_over_gloo(tmp_path: Path) -> None:
    """22 steps of DDP on two cores that others used, too; the rate is the one that is measured while computing stands still."""
    recorded = [(origin, samples[SKIPPED:]) for origin, samples in recording.read(GLOO)]
    assert [origin.rank for origin, _ in recorded] == [0, 1]
    trace = trace_from(recorded, Description("gloo"))
    assert trace.native_rate is not None
    save(trace, tmp_path / "gloo.json")
    results = testbed.run(
        on="flow", topo="star", trace=str(tmp_path / "gloo.json"), jobs=1, workers=2, rate=str(trace.native_rate.exact), mtu=9000, noise="0%",
        iterations=4, system="reno", isolated_runs="none", out=tmp_path,
    )  # fmt: skip
    step_s = median((one.end_ns - one.start_ns) / 1e9 for _, samples in recorded for one in samples)
    assert float(results.summary["mean_s"].iloc[0]) == pytest.approx(step_s, rel=0.05)

"""A run that ends since it repeats itself says what the whole one says."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

from testbed.cli import main
from testbed.core.runs.load import Run, load_run

JOB = (
    "--compute", "50ms", "--bytes", "500kB", "--rate", "100mbit", "--iterations", "24", "--system", "reno", "--alone", "none",
)  # fmt: skip


def carried_out(folder: Path, *flags: str) -> Run:
    assert main(["run", *JOB, "--on", "uml", "--out", str(folder), *flags]) == 0
    return load_run(next(folder.rglob("manifest.json")).parent)


@pytest.mark.parametrize(
    "jobs", [("--jobs", "1"), ("--jobs", "2", "--start-offsets", "0ms,45ms")], ids=["one", "two in turn"]
)
def test_what_is_filled_in_is_what_would_have_been(tmp_path: Path, jobs: tuple[str, ...]) -> None:
    whole = carried_out(tmp_path / "whole", *jobs)
    early = carried_out(tmp_path / "early", *jobs, "--stop-when-periodic")
    period = early.manifest.measured.period
    assert whole.manifest.measured.period is None and period is not None
    assert period.alike == 3 and max(period.carried) < 24
    # Whoever looks at the clock moves it by a nanosecond: so close, then.
    pd.testing.assert_frame_equal(early.iterations, whole.iterations, rtol=0, atol=1e-8)
    pd.testing.assert_frame_equal(early.operations, whole.operations, rtol=0, atol=1e-8)
    assert early.flows["t_s"].max() < whole.flows["t_s"].max()
    assert early.verdict.verdict == whole.verdict.verdict == "valid"


def test_where_nothing_repeats_it_goes_to_its_end(tmp_path: Path) -> None:
    found = carried_out(tmp_path, "--jobs", "2", "--stop-when-periodic", "2", "--compute", "40ms")
    assert found.manifest.measured.period is None and len(found.times) == 24

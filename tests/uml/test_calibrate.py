"""``schedule --emulate`` and ``calibrate`` as they are typed, on a few small runs."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from testbed.cli import main
from testbed.cli.schedule import calibrate
from testbed.core import heartbeat

JOBS = "job,gpus,iterations,gradient_bytes,compute_s\n1,4,6,6250000,0.01\n2,2,6,6250000,0.01\n3,6,6,6250000,0.01\n"


def lines_of(errors: str, total: int) -> list[str]:
    """Those about progress, with a count of ``total``."""
    return [line for line in errors.splitlines() if re.match(rf"\d+ \S+ {total}\b", line)]


def test_the_model_foretells_jobs_that_meet_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(heartbeat, "EVERY_S", 0.1)
    jobs = tmp_path / "jobs.csv"
    jobs.write_text(JOBS)
    words = ["schedule", str(jobs), "--servers", "2", "--gpus", "4", "--scheduler", "tightest_fit", "--emulate", "--out", str(tmp_path), "--json"]  # fmt: skip
    assert main(words) == 0
    written = capsys.readouterr()
    assert lines_of(written.err, 1)
    (found,) = json.loads(written.out)["results"]
    (came,) = found["emulated"]
    assert came["verdict"] == "valid" and [job["outcome"] for job in came["jobs"]] == ["done"] * 3
    assert abs(came["makespan_off"]) < 0.03 and came["job_off"] < 0.03
    said, numbers = (found, came["metrics"])
    assert numbers["makespan_s"] == came["makespan_s"] and numbers["mean_completion_s"] == came["mean_completion_s"]
    assert numbers["max_contention"] == said["max_contention"] == 1
    for name in ("mean_queueing_s", "mean_slowdown", "max_rho", "jain", "utilisation", "mean_contention"):
        assert numbers[name] == pytest.approx(said[name], rel=0.03), name
    assert main(words) == 0  # what is there is not run again
    assert json.loads(capsys.readouterr().out)["results"][0]["emulated"] == [came]


def test_constants_from_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(calibrate, "QUICK", calibrate.Grid((1, 2, 3), (2,), (0.5, 1.0), 6))
    monkeypatch.setattr(heartbeat, "EVERY_S", 0.1)
    assert main(["calibrate", "--quick", "--system", "reno", "--seeds", "1", "--out", str(tmp_path), "--json"]) == 0
    written = capsys.readouterr()
    assert lines_of(written.err, 6)
    (found,) = json.loads(written.out)["results"]
    assert (found["fitted"], found["held_out"]) == (2, 2)
    assert 2.0 < found["crowded"]["value"] < 4.5  # three jobs look like about three
    assert found["error"]["value"] < 0.3 and found["xi2_s"]["value"] < 1e-3


@pytest.mark.slow
def test_a_scheduler_that_sets_clocks_hears_first_what_jobs_take_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """CASSINI keeps two jobs apart that fit beside each other, and nothing that is there is run again."""
    monkeypatch.setattr(calibrate, "QUICK", calibrate.Grid((1, 2), (2,), (0.25, 0.5), 6))
    words = ["calibrate", "--quick", "--system", "cassini", "--seeds", "1", "--out", str(tmp_path), "--json"]
    assert main(words) == 0
    first = json.loads(capsys.readouterr().out)["results"]
    stored = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("manifest.json")}
    assert [path for path in stored if "isolated" in path.parts]
    assert main(words) == 0 and json.loads(capsys.readouterr().out)["results"] == first
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("manifest.json")} == stored

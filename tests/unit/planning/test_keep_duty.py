"""Bytes of a trace stay as they are, unless a job is to keep its duty."""

import json
from pathlib import Path
from typing import Any

import pytest

from testbed import spec
from testbed.core.runs.plan import Plan
from testbed.planning.plan import planned
from tests.support.group_traces import experts, unequal


def plan(**fields: Any) -> Plan:
    asked = {"jobs": 1, "trace": "gpt2", "system": ["reno"], "isolated_runs": "none", "mtu": 9000, "nic": "inf"}
    (made,) = planned(spec.read(None, asked | fields))[1]
    return made


def duty(one: Plan) -> float:
    (job,) = one.jobs
    assert job.ideal_s is not None
    return 1 - job.compute_ns / 1e9 / job.ideal_s


def test_a_faster_network_is_another_answer() -> None:
    at = {rate: plan(rate=rate) for rate in ("50gbit", "100gbit", "400gbit")}
    assert len({one.jobs[0].bytes_per_worker for one in at.values()}) == 1
    slow, middle, fast = (one.jobs[0].ideal_s for one in at.values())
    assert slow is not None and middle is not None and fast is not None
    assert slow > middle > fast >= at["400gbit"].jobs[0].compute_ns / 1e9


def test_a_job_that_keeps_its_duty_is_the_same_at_any_rate() -> None:
    native, slow = plan(rate="50gbit"), plan(rate="500mbit", keep_duty=True)
    assert slow.jobs[0].bytes_per_worker[0] == pytest.approx(native.jobs[0].bytes_per_worker[0] / 100, rel=1e-4)
    assert duty(slow) == pytest.approx(duty(native), abs=0.01)


def test_the_factor_and_what_cannot_be_meant_are_said() -> None:
    (factor,) = plan(rate="500mbit", keep_duty=True).notes
    assert "0.01" in factor
    (advice,) = plan(rate="500mbit").notes
    assert "--keep-duty" in advice
    assert plan(rate="50gbit").notes == ()
    assert plan(trace=None, compute="1ms", bytes="10MB", rate="500mbit").notes == ()


def test_a_trace_without_a_native_rate_says_that_it_keeps_its_bytes(tmp_path: Path) -> None:
    path = tmp_path / "free.json"
    path.write_text(json.dumps(experts()))
    free = {"trace": str(path), "topo": "star", "rate": "500mbit"}
    assert len(plan(**free, keep_duty=True).notes) == 1 and plan(**free).notes == ()


def test_the_note_is_of_the_rank_that_communicates_for_longest(tmp_path: Path) -> None:
    """1.33 MB at 500 Mbit/s, in frames of 9000 bytes; the other group has an exchange of its own."""
    path = tmp_path / "trace.json"
    path.write_text(json.dumps(unequal()))
    (note,) = plan(trace=str(path), topo="star", rate="500mbit").notes
    assert "communicates for 21.5 ms and computes for 1 ms" in note

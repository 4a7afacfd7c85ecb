"""What only this machine's own kernel does (eBPF, HTB, a real clock), where a run's own verdict says that it was let to.

Physics itself is proved under virtual time, in tests/uml.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from testbed.backends.host import Host
from testbed.core.runs import metrics
from tests.support import runs
from tests.support.runs import Result, shown_in_real_time

pytestmark = pytest.mark.alone

SYNTHETIC: dict[str, Any] = {"compute": "250ms", "bytes": "5.6MB", "rate": "200mbit"}  # 48 % duty
IDEAL_S = 0.25 + 5.6e6 * 8 / 200e6 * 1514 / 1448


def job_times(result: Result) -> np.ndarray:
    return metrics.iteration_times(result.table("iterations.csv")).to_numpy()


def test_a_lone_job_takes_its_ideal_time() -> None:
    def check(result: Result) -> None:
        assert result.manifest["plan"]["jobs"][0]["ideal_s"] == pytest.approx(IDEAL_S, abs=1e-3)
        assert np.median(job_times(result)) == pytest.approx(IDEAL_S, rel=0.02)

    shown_in_real_time(check, alone=True, iterations=6, cc=["reno"], **SYNTHETIC)


def test_mltcp_interleaves_two_jobs() -> None:
    """As eBPF: learned, and apart."""

    def check(result: Result) -> None:
        learned = metrics.mltcp_active_from(result.table("iterations.csv"), result.table("flows.csv"))
        assert learned is not None and learned <= 3
        assert metrics.steady(metrics.iteration_times(result.table("iterations.csv"))) <= 1.05 * IDEAL_S

    shown_in_real_time(check, iterations=25, cc=["mltcp_reno"], **SYNTHETIC)


@pytest.mark.parametrize(("cc", "held_up"), [("priority", False), ("reno", True)])
def test_priority_lets_the_job_with_less_left_finish_first(cc: str, held_up: bool) -> None:
    """Bands by HTB where there is no PRIO: 3 MB that begin last are hardly held up by 10 MB."""
    jobs = ["synthetic,compute=300ms,bytes=10MB", "synthetic,compute=350ms,bytes=3MB,iterations=1"]

    def check(result: Result) -> None:
        waited = (job_times(result)[0, 1] - 0.35) / (3e6 * 8 / 200e6 * 1514 / 1448)
        assert waited > 1.5 if held_up else waited < 1.15

    shown_in_real_time(check, cc=[cc], job=jobs, rate="200mbit", start_offsets="0ms,0ms", iterations=1)


def test_cassini_interleaves_at_once() -> None:
    def check(result: Result) -> None:
        assert np.median(job_times(result)[1:]) <= 1.05 * IDEAL_S
        assert len({job["grid"]["phase_ns"] for job in result.manifest["plan"]["jobs"]}) == 2

    shown_in_real_time(check, iterations=6, cc=["cassini"], **SYNTHETIC)


def test_a_ring_carries_its_bytes_both_ways() -> None:
    """Counted, which no clock changes."""
    fields: dict[str, Any] = {
        "trace": "resnet50",
        "keep_duty": True,
        "rto_min": "5ms",
        "ack_priority": "on",
        "rate": "200mbit",
    }
    result = runs.run_plan(Host(), iterations=4, jobs=1, cc=["reno"], **fields)
    rows = result.table("iterations.csv")
    assert set(rows["bytes"]) == set(result.manifest["plan"]["jobs"][0]["bytes_per_worker"])
    assert rows["bytes"].iloc[0] == pytest.approx(102_228_128 * 200 / 10_000, abs=3)  # five buckets, rounded
    links = result.table("links.csv").groupby("link")["bytes"].last()
    assert links["s1-s2"] == pytest.approx(links["s2-s1"], rel=0.02)

"""`--capture`: what may be captured, and the estimate by which rings are made."""

from __future__ import annotations

from typing import Any

import pytest

from testbed.core.errors import RequestError
from testbed.core.runs.plan import Capture
from testbed.planning import captures
from tests.support.runs import one_plan

RUN: dict[str, Any] = {"jobs": 2, "iterations": 10, "compute": "50ms", "bytes": "14.48MB", "rate": "300mbit", "isolated_runs": "none", "system": ["reno"], "on": "uml"}  # fmt: skip


def captured(**fields: Any) -> Capture:
    found = one_plan(**RUN | fields).capture
    assert found is not None
    return found


def test_the_estimate_is_of_all_data_packets_and_an_ack_for_each() -> None:
    """10,000 data packets an iteration and job; before and after the queue."""
    found = captured(capture=["s1-s2"])
    assert found.packets == 2 * 2 * 10 * 2 * 10_000
    assert found.bytes == 2 * 2 * 10 * 10_000 * (44 + 96 + 44 + 66)
    part = captured(capture=["s1-s2", "l1"], capture_iterations="3-5")
    assert (part.packets, part.first, part.last) == (2 * found.packets * 3 // 10, 3, 5)
    assert captures.described(found) == "Capture of s1-s2: about 800,000 packets at most, 100.0 MB a run; 14.9 MB of memory for rings."  # fmt: skip


def test_rings_hold_what_a_link_carries_between_two_drains() -> None:
    for rate, snaplen in (("100mbit", 96), ("1gbit", 96), ("50gbit", 1514)):
        found = captured(capture=["s1-s2"], rate=rate, snaplen=snaplen, bytes="1MB")
        packets_per_s = 2 * int(float(rate[:-4]) * (10**6 if rate.endswith("mbit") else 10**9)) / 8 / 1514
        assert found.ring_packets >= 3.9 * packets_per_s * found.drain_ns / 1e9
        assert found.memory_bytes >= 4 * found.ring_packets * snaplen


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"capture": ["s1-s3"]}, r"no link or host .s1-s3.\. Did you mean s1-s2\?"),
        ({"capture": ["s1-s2"], "on": "flow"}, "flow-level simulator has no packets"),
        ({"capture": ["s1-s2"], "stop_when_periodic": 3}, "fills in iterations, which have no packets"),
        ({"capture": ["s1-s2"], "capture_iterations": "5-3"}, "not a range within 0 to 9"),
        ({"capture": ["s1-s2"], "capture_iterations": "10"}, "not a range within 0 to 9"),
        ({"capture": ["s1-s2"], "capture_iterations": "a"}, "neither a number nor a range"),
        ({"capture_iterations": "3"}, "nothing is captured"),
        ({"capture": ["s1-s2"], "iterations": 1000}, r"That is more than 1 GB\. Capture fewer iterations"),
    ],
)
def test_what_cannot_be_captured_is_refused(fields: dict[str, Any], words: str) -> None:
    with pytest.raises(RequestError, match=words):
        one_plan(**RUN | fields)


def test_jobs_alone_are_not_captured() -> None:
    assert one_plan(True, **RUN | {"capture": ["s1-s2"], "isolated_runs": "each"}).capture is None

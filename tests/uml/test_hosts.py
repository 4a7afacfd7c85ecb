"""Hosts as they are: their own queues (`host_limit`), several flows a job (`floor`), exchanges in buckets beside computing."""

from __future__ import annotations

from typing import Any

import pytest

from testbed.backends import uml
from tests.support.runs import DEFAULT, run_plan


def widest(system: str) -> int:
    """The largest window of a lone job behind an interface as fast as the link, which drops nothing before it is full."""
    lone: dict[str, Any] = {
        "jobs": 1, "iterations": 4, "compute": "50ms", "bytes": "15MB", "rate": "500mbit", "nic": "100%", "ecn": "off", "buffer": "200p",
    }  # fmt: skip
    return int(run_plan(uml.find(), system=[system], **lone).table("flows.csv")["cwnd_segments"].max())


def test_a_window_does_not_grow_into_its_own_hosts_queue() -> None:
    assert widest("mltcp_reno:preset=paper,host_limit=on") < 0.7 * widest("mltcp_reno:preset=paper")


def took_s(buckets: int) -> float:
    """The last iteration of a synthetic all-reduce of four workers, alone."""
    fields: dict[str, Any] = {
        "jobs": 1, "workers": 4, "collective": "ring", "iterations": 3, "compute": "60ms", "bytes": "4MB", "rate": "1gbit",
        "topo": "star", "system": ["reno"], "buckets": buckets,
    }  # fmt: skip
    table = run_plan(uml.find(), **fields).table("iterations.csv")
    last = table[table["iteration"] == table["iteration"].max()]
    return float((last["end_s"] - last["start_s"]).max())


def test_buckets_are_exchanged_while_the_rest_is_computed() -> None:
    whole, split = took_s(1), took_s(4)
    assert split < whole - 0.015  # of 48 ms of exchange most is hidden


@pytest.mark.slow
def test_several_flows_a_job_interleave_where_links_mark() -> None:
    """Each has a small window there: a floor under F would leave nothing to divide."""
    fields = DEFAULT | {
        "jobs": 2,
        "channels": 4,
        "iterations": 26,
        "start_offsets": "clustered",
        "system": ["mltcp_reno"],
    }
    iterations = run_plan(uml.find(), **fields).table("iterations.csv")
    last = iterations[iterations["iteration"] >= 18]
    assert (last["end_s"] - last["start_s"]).mean() < 1.05  # alone a second, together without MLTCP 1.47


def test_a_link_has_64_jobs() -> None:
    """Their workers have more than 1,024 descriptors."""
    fields: dict[str, Any] = {
        "jobs": 64, "iterations": 1, "compute": "50ms", "bytes": "10kB", "rate": "1gbit", "system": ["reno"],
    }  # fmt: skip
    assert run_plan(uml.find(), **fields).table("iterations.csv")["job"].nunique() == 64

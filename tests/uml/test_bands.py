"""Bands of priority at a switch: what can be marked is marked, what cannot is dropped from the same threshold on."""

from __future__ import annotations

from typing import Any

import pytest

from testbed.substrates import uml
from tests.runs import run_plan

pytestmark = pytest.mark.uml

# An incast: three workers send to one at once.
ASKED: dict[str, Any] = {
    "topo": "star", "jobs": 1, "workers": 4, "collective": "parameter_server", "compute": "5ms", "bytes": "2MB",
    "rate": "300mbit", "iterations": 3, "ecn": "30kB", "buffer": "200p",
}  # fmt: skip


def test_a_switch_marks_what_can_be_marked() -> None:
    bands = run_plan(uml.find(), bands="2,drop", system=["dctcp"], **ASKED).table("bands.csv")
    here = bands[bands["link"] == "s1-h1"].set_index("band")
    assert list(here.index) == [0, 1, 2]
    assert here.loc[0, "ecn_marks"] > 0 and here.loc[0, "packets"] > 1000
    assert bands["dropped_unmarked"].sum() == 0
    assert bands.loc[bands["link"].str.startswith("h"), "ecn_marks"].sum() == 0  # hosts have PRIO, and no RED
    # Pure ACKs travel above all data, in both directions.
    assert bands[bands["link"] == "h1-s1"].set_index("band").loc[2, "packets"] > 100


def test_a_switch_drops_what_cannot_be_marked() -> None:
    """The datagrams of LTP are not ECN-capable; what it calls critical travels in a band above."""
    result = run_plan(uml.find(), bands="2,drop", system=["ltp"], **ASKED)
    here = result.table("bands.csv").set_index(["link", "band"]).loc["s1-h1"]
    assert here["ecn_marks"].sum() == 0
    assert here.loc[0, "dropped_unmarked"] > 0 and here["dropped_full"].sum() == 0
    # As long as something is left to be dropped, the queue of a band never grows beyond its threshold.
    assert result.table("links.csv")["backlog_bytes"].max() < 3 * 31_514
    kept = run_plan(uml.find(), bands="2", system=["ltp"], **ASKED).table("bands.csv")
    assert kept["dropped_unmarked"].sum() == 0

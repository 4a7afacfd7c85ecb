"""A path is an address: what a host sends round them is the same on every spine, and what is hashed by flow is not."""

from __future__ import annotations

import json

import pytest

from testbed.backends import uml
from tests.support.processes import HANG_S
from tests.support.runs import run_plan, some
from tests.uml.inside_spraying import BYTES, DATAGRAMS, SPINES

pytestmark = pytest.mark.uml


def test_addresses_spread_evenly_over_the_spines_and_flows_do_not() -> None:
    told = json.loads(uml.find().call("tests.uml.inside_spraying:spread", HANG_S))
    for how in ("sprayed", "hashed"):
        assert len(told[how]) == SPINES and sum(told[how]) > DATAGRAMS * BYTES
    mean = sum(told["sprayed"]) / SPINES
    assert max(told["sprayed"]) - min(told["sprayed"]) < 0.02 * mean
    assert max(told["hashed"]) - min(told["hashed"]) > 0.2 * mean


@pytest.mark.parametrize(
    ("topo", "first"),
    some([("leafspine,2,4,2", "l1-s"), ("fattree,4", "a2-c")], ("leafspine,2,4,2", "l1-s"), mark=pytest.mark.slow),
)
def test_routers_take_turns_for_tcp(topo: str, first: str) -> None:
    """Whatever the connection: each link of a stage carries the same within 2 %, over several stages, too; by hash some carry little."""
    asked = {
        "topo": topo, "jobs": 1, "workers": 2, "scheduler": "spread", "collective": "ring", "compute": "5ms", "bytes": "4MB",
        "rate": "300mbit", "iterations": 2, "ecn": "on", "channels": 1,
    }  # fmt: skip
    found = {}
    for system in ("dctcp", "dctcp:spray=on"):
        result = run_plan(uml.find(), system=[system], **asked)  # type: ignore[arg-type]
        links = result.table("links.csv")
        up = links[links["link"].str.startswith(first)].groupby("link")["bytes"].max()
        found[system] = up
        assert ("TCPSACKReorder" in result.manifest["measured"]["tcp"]) == (system != "dctcp")
    apart = {system: (up.max() - up.min()) / up.mean() for system, up in found.items()}
    assert apart["dctcp:spray=on"] < 0.02 < 0.2 < apart["dctcp"]

"""A path is an address: what a host sends round them is the same on every spine, and what is hashed by flow is not."""

from __future__ import annotations

import json

import pytest

from testbed.substrates import uml
from tests.processes import HANG_S
from tests.uml.inside_spraying import BYTES, DATAGRAMS, SPINES

pytestmark = pytest.mark.uml


def test_addresses_spread_evenly_over_the_spines_and_flows_do_not() -> None:
    told = json.loads(uml.find().call("tests.uml.inside_spraying:spread", HANG_S))
    for how in ("sprayed", "hashed"):
        assert len(told[how]) == SPINES and sum(told[how]) > DATAGRAMS * BYTES
    mean = sum(told["sprayed"]) / SPINES
    assert max(told["sprayed"]) - min(told["sprayed"]) < 0.02 * mean
    assert max(told["hashed"]) - min(told["hashed"]) > 0.2 * mean

"""A change of structure changes no byte under virtual time: the digests recorded at the last release of this format."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest

from testbed.backends import uml
from tools import golden

IN_SHORT = ("11-netem", "12-red-acks-first", "22-events")
RECORDED = json.loads(golden.DIGESTS.read_text())


@pytest.mark.parametrize(
    "name", [name if name in IN_SHORT else pytest.param(name, marks=pytest.mark.long) for name in RECORDED["plans"]]
)
def test_the_same_bytes(name: str, tmp_path: Path) -> None:
    kernel = msgspec.to_builtins(uml.find().identity())
    if not golden.same_kernel(RECORDED["kernel"], kernel):
        pytest.skip(f"recorded with Linux {RECORDED['kernel']['version']}, here it is {kernel['version']}: other bytes")
    digests, _ = golden.carry_out(golden.PLANS / f"{name}.toml", tmp_path)
    assert golden.differences({name: RECORDED["plans"][name]}, {name: digests}) == []

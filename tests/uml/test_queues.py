"""Every queue of a bottleneck runs in the user-mode kernel: its parameters are read back, and it marks or drops."""

from __future__ import annotations

from pathlib import Path

import pytest

import testbed
from testbed import queues, registry
from tests.support.paths import ROOT
from tests.support.runs import some

OWN = str(ROOT / "examples" / "queue_few_packets.py")
SHORT = {
    "codel": "codel:target=1ms,interval=10ms",
    "fq_codel": "fq_codel:target=1ms,interval=10ms",
    "cake": "cake:rtt=10ms",
}


@pytest.mark.parametrize("name", some([*registry.names(registry.QUEUE), OWN], "fq_codel", "pie", "cake", OWN))
def test_it_is_valid_and_has_counted(name: str, tmp_path: Path) -> None:
    results = testbed.run(
        jobs=2, rate="100mbit", compute="20ms", bytes="1MB", iterations=6, buffer="40p", delay="2ms", system="cubic",
        queue=SHORT.get(name, name), isolated_runs="none", on="uml", out=tmp_path,
    )  # fmt: skip
    assert results.verdict == "valid"
    last = results.table("links").groupby("link").last().loc["s1-s2"]
    assert last["ecn_marks"] + last["drops"] > 0
    assert queues.find(name).MARKS or last["ecn_marks"] == 0

"""Every queue of a bottleneck runs in the user-mode kernel: its parameters are read back, and it marks or drops."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import testbed
from testbed import queues, registry
from tests.support.paths import ROOT
from tests.support.runs import some

OWN = str(ROOT / "examples" / "queue_few_packets.py")
OPTIONS = {
    "codel": ("codel:target=1ms,interval=10ms", {"target_us": 999, "interval_us": 9999}),
    "fq_codel": ("fq_codel:target=1ms,interval=10ms,flows=64", {"target_us": 999, "interval_us": 9999, "flows": 64}),
    "cake": ("cake:rtt=10ms,isolation=flows", {"rtt_us": 10_000, "target_us": 500, "isolation": 4}),
    "pie": ("pie:target=5ms,alpha=4", {"target_us": 5000, "alpha": 4}),
    "fq": ("fq:quantum=1514B,flow_limit=30", {"quantum_bytes": 1514, "flow_limit_packets": 30}),
    "sfq": ("sfq:flows=60,depth=20", {"flows": 40, "depth_packets": 20}),
    OWN: (OWN, {}),
}


def test_every_queue_has_a_run_with_options() -> None:
    assert set(OPTIONS) == {*registry.names(registry.QUEUE), OWN}


@pytest.mark.parametrize("name", some(OPTIONS, "fq_codel", "pie", "cake", OWN))
def test_it_is_valid_has_counted_and_was_read_back(name: str, tmp_path: Path) -> None:
    queue, wanted = OPTIONS[name]
    results = testbed.run(
        jobs=2, rate="100mbit", compute="20ms", bytes="1MB", iterations=6, buffer="40p", delay="2ms", system="cubic",
        queue=queue, isolated_runs="none", on="uml", out=tmp_path,
    )  # fmt: skip
    assert results.verdict == "valid"
    settings = json.loads(next(tmp_path.rglob("manifest.json")).read_text())["settings"]
    (held,) = [one["value"]["below_1"] for one in settings if (one["where"], one["what"]) == ("s1-eth0", "shaper")]
    assert held["queue"] == queues.find(name).KERNEL_NAME and {**held, **wanted} == held
    last = results.table("links").groupby("link").last().loc["s1-s2"]
    assert last["ecn_marks"] + last["drops"] > 0
    assert queues.find(name).MARKS or last["ecn_marks"] == 0

"""What a verdict says of real runs that keep an invariant, and of those that break it."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from testbed.backends import uml
from testbed.campaign.verdict import judge
from tests.support import runs

SLOW = {"rate": "100mbit", "compute": "100ms", "bytes": "1MB"}  # ideal: 184 ms


def judged(**fields: Any) -> dict[str, list[dict[str, Any]]]:
    """Verdict and rows, by id, of the (only) plan of a spec."""
    verdict = judge(runs.case(runs.run_plan(uml.find(), **fields)))
    rows: dict[str, list[dict[str, Any]]] = {"verdict": [msgspec.to_builtins(verdict)]}
    for row in verdict.invariants:
        rows.setdefault(row.id, []).append({"note": "", **msgspec.to_builtins(row)})
    return rows


def test_a_run_that_is_seldom_sampled_is_valid() -> None:
    """Four jobs that pause by their noise: at 50 ms most queues come and go between two samples."""
    found = judged(jobs=4, iterations=20, noise="2%", sample_interval="50ms", cc=["reno"], **SLOW)
    assert found["verdict"][0]["verdict"] == "valid"
    assert found["I3"][0]["value"] == 0 and found["I4"][0]["status"] == "not evaluated"
    # Recorded; hosts' own queues have no rate here.
    assert [row["status"] for row in found["I18"]] == ["ok"] * 3 + ["not applicable"]
    assert found["I17"][0]["status"] == found["I19"][0]["status"] == "ok"


def test_a_path_longer_than_the_receive_window_makes_a_run_suspect() -> None:
    """10 Gbit/s over 40 ms are 50 MB in flight; Linux offers 16 MB at most."""
    found = judged(
        jobs=1, iterations=2, cc=["reno"], rate="10gbit", mtu=9000, delay="20ms", buffer="20MB", compute="10ms",
        bytes="150MB", sample_interval="100ms", alone="none",
    )  # fmt: skip
    assert found["I17"][0]["status"] == "suspect" and "by a receive window" in found["I17"][0]["note"]


@pytest.mark.long
@pytest.mark.parametrize("cc", ["reno", "mltcp_reno"])
def test_a_long_run_that_is_seldom_sampled_is_valid(cc: str) -> None:
    found = judged(jobs=4, iterations=500, noise="2%", sample_interval="50ms", cc=[cc])
    assert found["verdict"][0]["verdict"] == "valid"


def test_an_event_after_the_end_makes_a_run_suspect() -> None:
    event = [{"at": "200ms", "link": "s1-s2", "rate": "50%"}, {"at": "3600s", "link": "s1-s2", "rate": "100%"}]
    found = judged(jobs=1, iterations=2, cc=["reno"], event=event, **SLOW)
    assert found["verdict"][0]["verdict"] == "suspect"
    assert found["I15"][0]["value"] == 2 and "s1-s2 at 3600 s, s2-s1 at 3600 s" in found["I15"][0]["note"]
    assert found["I3"][0]["value"] == 0  # nor does the change carry more than its rate


def test_mltcp_is_in_force_or_its_run_is_suspect() -> None:
    """It learns iterations from pauses: without any that count as such, its flows stay on their base."""
    found = judged(jobs=1, iterations=10, cc=["mltcp_reno"], **SLOW)
    assert (found["I16"][0]["value"], found["I16"][0]["status"]) == (1, "ok")
    short = {**SLOW, "compute": "300us", "bytes": "200kB"}
    never = judged(jobs=1, iterations=10, cc=["mltcp_reno:first_gap=1s"], **short)
    assert never["I16"][0]["value"] < 0.95 and never["I16"][0]["status"] == "suspect"
    assert never["verdict"][0]["verdict"] == "suspect"

"""Background traffic in the user-mode kernel: its metrics, its repeatability, and its agreement with queueing theory."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import testbed
from testbed.core.errors import TestbedError
from testbed.models.frames import payload_share
from tests.support.runs import some

QUIET: dict[str, Any] = {
    "job": ["synthetic,compute=1s,bytes=1kB"],
    "isolated_runs": "none",
    "on": "uml",
    "system": "reno",
}


@pytest.mark.slow
def test_kinds_beside_jobs(tmp_path: Path) -> None:
    """Every kind that needs no program, twice: `valid`, and the same bytes."""
    fields: dict[str, Any] = {
        "jobs": 2, "compute": "100ms", "bytes": "2MB", "iterations": 4, "rate": "200mbit", "system": "reno",
        "isolated_runs": "none", "on": "uml",
        "background": [
            "long:flows=2,stop=500ms", "poisson:load=0.1,sizes=rpc", "incast:every=200ms", "storage:bytes=100kB,rate=20", "checkpoint:bytes=1MB,every=300ms",
            "inference:rate=50", "cmd:command=echo hello",
        ],
    }  # fmt: skip
    one, two = (testbed.run(**fields, out=tmp_path / name) for name in "ab")
    assert one.verdict == "valid", one.reasons
    flows = one.table("background")
    assert set(flows["label"]) == {
        "long",
        "poisson",
        "incast",
        "storage",
        "checkpoint",
        "inference",
        "cmd",
    }
    sized = flows[flows["bytes"].notna() & flows["end_s"].notna()]
    assert (sized["received_bytes"] == sized["bytes"]).all() and flows["failure"].isna().all()
    assert (flows[flows["label"] == "long"]["end_s"] - 0.5).abs().max() < 1e-3
    assert flows.equals(two.table("background"))


@pytest.mark.parametrize("load", some([0.3, 0.6], 0.3, mark=pytest.mark.slow))
def test_fair_shares_complete_as_processor_sharing(load: float, tmp_path: Path) -> None:
    """Mean completion of Poisson flows of one size with fair queueing: size ÷ (C (1 − load)), within 10 %."""
    size, rate = 500_000, 100e6
    (tmp_path / "one.csv").write_text(f"{size},1\n")
    results = testbed.run(
        **QUIET, iterations=100, rate="100mbit", nic="inf", queue="fq_codel:target=20ms",
        background=[f"poisson:load={load},sizes={tmp_path / 'one.csv'}"], out=tmp_path,
    )  # fmt: skip
    flows = results.table("background").dropna(subset=["end_s"])
    capacity = rate * payload_share(1500)
    offered = len(flows) * size * 8 / 100 / capacity  # as drawn
    expected = size * 8 / (capacity * (1 - offered))
    assert (flows["end_s"] - flows["start_s"]).mean() == pytest.approx(expected, rel=0.10)


@pytest.mark.slow
def test_priority_queues_serve_small_flows_first(tmp_path: Path) -> None:
    """Slowdown by size: under DCTCP small flows wait behind large ones; in priority queues by size they do not."""
    means = {}
    for name, queues in {"dctcp": "1", "by-size": "3"}.items():
        more = ",priority=by-size" if name == "by-size" else ""
        results = testbed.run(
            **QUIET, iterations=40, rate="200mbit", nic="inf", priority_queues=queues,
            background=[f"poisson:load=0.6,sizes=websearch,congestion=dctcp{more}"], out=tmp_path / name,
        )  # fmt: skip
        flows = results.table("background").dropna(subset=["end_s"])
        slowdown = (flows["end_s"] - flows["start_s"]) / (flows["bytes"] * 8 / (200e6 * payload_share(1500)))
        means[name] = slowdown.groupby(flows["bytes"] > 100_000).mean().to_dict()
    assert means["by-size"][False] < 0.8 * means["dctcp"][False]
    assert means["by-size"][False] < means["by-size"][True]


def test_a_program_that_fails_is_reported_with_its_output(tmp_path: Path) -> None:
    with pytest.raises(TestbedError, match=r"(?s)background cmd: cat /nowhere ended with code 1.*No such file"):
        testbed.run(**QUIET, iterations=3, background=["cmd:command=cat /nowhere"], out=tmp_path)


def test_a_program_that_cannot_be_started_is_one_paragraph(tmp_path: Path) -> None:
    with pytest.raises(
        TestbedError, match=r"background cmd: /etc/passwd cannot be started: Permission denied\. Name an"
    ):
        testbed.run(**QUIET, iterations=3, background=["cmd:command=/etc/passwd {target}"], out=tmp_path)

"""Physical truth under virtual time, where nothing of the machine blurs it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from testbed.backends import uml
from testbed.core.runs import metrics
from tests.support import runs
from tests.support.runs import Result

SYNTHETIC: dict[str, Any] = {"compute": "500ms", "bytes": "28MB"}  # 48 % duty at 500 Mbit/s
RATE = 500e6
OWN = """
from testbed.networks.routed import RoutedTopo
class Mine(RoutedTopo):
    def wire(self):
        for router in ("s1", "s2", "s3"):
            self.router(router)
        self.link("s1", "s2", bottleneck=True, rate="100mbit", buffer="2ms")
        self.link("s2", "s3", delay="2ms")
        self.link(self.addHost("h1"), "s1")
        self.link(self.addHost("h2"), "s3")
topos = {"mine": Mine}
"""
GREEDY: dict[str, Any] = {"iterations": 1, "compute": "1ms", "bytes": "60MB", "start_offsets": "0ms,0ms"}


def run_plan(alone: bool = False, **fields: Any) -> Result:
    return runs.run_plan(uml.find(), alone, **fields)


def test_a_lone_job_takes_its_ideal_time() -> None:
    result = run_plan(alone=True, iterations=3, cc=["reno"], **SYNTHETIC)
    ideal = result.manifest["plan"]["jobs"][0]["ideal_s"]
    assert metrics.iteration_times(result.table("iterations.csv")).to_numpy() == pytest.approx(ideal, rel=0.002)


def test_a_lone_sender_queues_in_its_own_interface_as_far_as_small_queues_let_it() -> None:
    """And takes its ideal time all the same: an interface of the link's rate is no bottleneck."""
    result = run_plan(alone=True, iterations=3, cc=["reno"], nic="100%", **SYNTHETIC)
    ideal = result.manifest["plan"]["jobs"][0]["ideal_s"]
    assert metrics.iteration_times(result.table("iterations.csv")).to_numpy() == pytest.approx(ideal, rel=0.005)
    waits = result.table("nics.csv").groupby("link")["backlog_bytes"].max()
    assert 20 * 1514 < waits.max() <= 1 << 20, "some frames, and no more than `tcp_limit_output_bytes`"
    assert result.table("links.csv")["backlog_bytes"].max() <= 3 * 1514, "nothing of it is left for the link's queue"


def test_two_equal_flows_share_equally_and_fill_the_link() -> None:
    result = run_plan(cc=["reno"], **GREEDY)
    flows = result.table("flows.csv")
    by_flow = flows[(flows["t_s"] > 0.3) & (flows["t_s"] < 1.7)].groupby("job")
    carried = by_flow["bytes_acked"].last() - by_flow["bytes_acked"].first()
    span = (by_flow["t_s"].last() - by_flow["t_s"].first()).mean()
    assert metrics.jain_index(carried.to_numpy(dtype=float)) >= 0.95
    assert carried.sum() * 8 / span == pytest.approx(RATE * 1448 / 1514, rel=0.003)


def test_mltcp_interleaves_two_jobs_and_reno_does_not() -> None:
    result = run_plan(iterations=18, cc=["mltcp_reno"], **SYNTHETIC)
    times = metrics.iteration_times(result.table("iterations.csv"))
    learned = metrics.mltcp_active_from(result.table("iterations.csv"), result.table("flows.csv"))
    assert learned is not None and learned <= 3
    assert times.iloc[-4:].to_numpy().mean() <= 1.01 * 0.9684
    reno = metrics.iteration_times(run_plan(iterations=8, cc=["reno"], **SYNTHETIC).table("iterations.csv"))
    assert reno.to_numpy().mean() >= 1.3 * 0.9684


def test_a_decreasing_f_does_not_interleave() -> None:
    result = run_plan(iterations=10, cc=["mltcp_reno:slope=-1.75,intercept=2"], **SYNTHETIC)
    times = metrics.iteration_times(result.table("iterations.csv"))
    assert times.to_numpy().mean() >= 1.35 * 0.9684
    constants = {
        "slope": -1792, "intercept": 2048, "curve": 0, "gap_factor": 512, "first_gap_us": 1000, "total_bytes": 0,
        **dict.fromkeys(("apply", "floor_cwnd", "given", "host_limit", "learn", "ratio", "restart", "share"), 0),
    }  # fmt: skip
    assert result.manifest["congestion_controls"] == [
        {
            "spec": "mltcp_reno:slope=-1.75,intercept=2", "registered_as": "mltcp_reno", "kind": "module",
            "constants": constants,
        },
    ]  # fmt: skip


def test_50_gbit_with_large_frames() -> None:
    """A rate no machine forwards in real time: the lone job is exact, and every byte is counted."""
    fields = {"rate": "50gbit", "mtu": 9000, "buffer": "2MB", "compute": "50ms", "bytes": "200MB", "jobs": 1}
    result = run_plan(alone=True, iterations=3, cc=["mltcp_reno"], **fields)
    rows = result.table("iterations.csv")
    ideal = result.manifest["plan"]["jobs"][0]["ideal_s"]
    assert metrics.iteration_times(rows).to_numpy() == pytest.approx(ideal, rel=0.005)
    assert set(rows[rows["worker"] == 0]["bytes"]) == {200_000_000}


def test_delay_is_exact_and_loss_is_as_asked() -> None:
    result = run_plan(
        cc=["reno"], delay="3ms", loss="1%", rate="100mbit", jobs=1, iterations=1, compute="1ms", bytes="20MB"
    )
    assert result.manifest["measured"]["rtt_us_before"] == pytest.approx(6000, abs=15)
    retransmitted = result.table("flows.csv")["retrans_segments"].iloc[-1]
    assert retransmitted / (20e6 / 1448) == pytest.approx(0.01, rel=0.35)
    assert {row["what"] for row in result.manifest["settings"]} >= {"netem", "shaper"}


def test_corrupt_packets_are_dropped_by_who_receives_them() -> None:
    result = run_plan(
        cc=["reno"], corrupt="1%", rate="100mbit", jobs=1, iterations=1, compute="1ms", bytes="20MB", buffer="20MB"
    )
    retransmitted = result.table("flows.csv")["retrans_segments"].iloc[-1]
    assert retransmitted / (20e6 / 1448) == pytest.approx(0.01, rel=0.35)
    assert set(result.table("iterations.csv").query("worker == 0")["bytes"]) == {20_000_000}
    assert result.table("links.csv")["drops"].max() == 0


def test_losses_come_in_bursts() -> None:
    """All packets of a burst, bursts of ten in the mean, one in a thousand packets begins one: 1 % all in all, and mostly together."""
    asked: dict[str, Any] = {
        "system": ["ltp:fraction=1"],
        "topo": "star",
        "collective": "parameter_server",
        "jobs": 1,
        "rate": "100mbit",
        "iterations": 1,
    }
    result = run_plan(
        **asked, compute="1ms", bytes="20MB", loss="ge:loss=99.9%,p=0.1%,r=10%", message_log="per-message"
    )
    netem = next(row["value"] for row in result.manifest["settings"] if "bursts" in row["value"])
    assert netem["loss"] == 0 and netem["bursts"][:2] == [round(0.001 * (2**32 - 1)), round(0.1 * (2**32 - 1))]
    packets = 20e6 / 1400
    resent = result.table("messages.csv").query("side == 'send' and stage == 'gradient'")["resent"].sum() / 1400
    assert 0.003 < resent / packets < 0.04


def test_much_loss_and_much_delay_come_about() -> None:
    """Probes and handshakes are lost, too: 10 % here and there; and half a second one way."""
    lossy = run_plan(
        cc=["reno"], loss="10%", rate="10mbit", jobs=1, iterations=1, compute="1ms", bytes="100kB", buffer="20kB"
    )
    assert len(lossy.table("iterations.csv")) == 2
    far = run_plan(
        cc=["reno"], delay="500ms", rate="10mbit", jobs=1, iterations=1, compute="1ms", bytes="100kB", buffer="50kB"
    )
    assert far.manifest["measured"]["rtt_us_before"] == pytest.approx(1e6, rel=0.001)


def test_a_link_of_its_own(tmp_path: Path) -> None:
    """A topology from outside the checkout, whose links say for themselves what they are."""
    (tmp_path / "mine.py").write_text(OWN)
    result = run_plan(topo=str(tmp_path / "mine.py"), cc=["reno"], jobs=1, iterations=2, compute="10ms", bytes="1MB")
    assert result.manifest["measured"]["rtt_us_before"] == pytest.approx(4000, abs=15)
    settings = {(row["where"], row["what"]): row["value"] for row in result.manifest["settings"]}
    assert settings["s1-eth0", "shaper"]["rate_bps"] == 100_000_000
    assert settings["s2-eth1", "netem"]["delay_ns"] == 2_000_000


def test_marking_instead_of_dropping() -> None:
    """DCTCP under RED's step: marks, no drops, and a queue about as long as the threshold."""
    links = run_plan(cc=["dctcp"], ecn="20kB", **GREEDY).table("links.csv")
    data = links[links["link"] == "s1-s2"]
    busy = data[(data["t_s"] > 0.3) & (data["t_s"] < 1.7)]
    assert data["drops"].iloc[-1] == 0
    assert data["ecn_marks"].iloc[-1] > 1000
    assert 5_000 < busy["backlog_bytes"].mean() < 30_000


def test_acks_first_uses_strict_priority() -> None:
    """ACKs no longer wait behind reverse data: the best iteration of a lone ring is shorter."""
    ring = {"jobs": 1, "iterations": 5, "cc": ["reno"], "trace": "resnet50", "keep_duty": True, "rate": "300mbit"}

    def best(**more: Any) -> float:
        return float(
            metrics.iteration_times(run_plan(alone=True, **ring, **more).table("iterations.csv")).to_numpy().min()
        )

    assert best(ack_priority="on") < best()

"""Each invariant on tables where the answer is known."""

from __future__ import annotations

import platform
from typing import Any

import numpy as np
import pandas as pd
import pytest

from testbed import plan, spec, verdict
from testbed.errors import MachineError
from testbed.substrates.host import Host

RATE = 500_000_000


def made(**fields: Any) -> plan.Plan:
    return plan.plans(spec.read(None, {"compute": "500ms", "bytes": "28MB", **fields}))[0]


def links(served: float, *, backlog: int = 30_000, stall_at: int | None = None) -> pd.DataFrame:
    """Two seconds of a busy link that sends ``served`` of its rate; one interval may stand still."""
    t = np.arange(0, 2, 0.01)
    sent = np.full(len(t), RATE / 8 * 0.01 * served)
    sent[0] = 0
    if stall_at is not None:
        sent[stall_at] = 0
    return pd.DataFrame({"t_s": t, "link": "s1-s2", "bytes": np.cumsum(sent), "backlog_bytes": backlog})


def sending(*phases: tuple[float, float]) -> pd.DataFrame:
    """When somebody sends: all the time, if nothing is said."""
    table = pd.DataFrame(phases or [(0.0, 9.0)], columns=["comm_start_s", "end_s"])
    return table.assign(bytes=1)


@pytest.mark.parametrize(("served", "status"), [(1.0, "ok"), (0.985, "suspect"), (1.02, "suspect"), (0.95, "invalid")])
def test_a_wrong_rate_is_told(served: float, status: str) -> None:
    assert verdict._shaper_exactness(links(served), sending(), made())[0]["status"] == status


def test_a_link_that_stood_still_once_is_told_apart() -> None:
    exact, worst = verdict._shaper_exactness(links(1.0, stall_at=100), sending(), made())
    assert worst["value"] == pytest.approx(0.1)
    assert worst["status"] != "invalid"
    assert exact["value"] == pytest.approx(0, abs=1e-6)
    assert verdict._work_conservation(links(1.0, stall_at=100), sending(), made())["status"] == "ok"


def test_between_two_phases_a_link_may_rest() -> None:
    """Jobs of 65 ms that follow each other within 5 ms: the queue goes and comes between two samples."""
    phases = [(0.07 * i, 0.07 * i + 0.065) for i in range(30)]
    t = np.arange(0, 2, 0.01)
    sent = [sum(min(end, at) - begin for begin, end in phases if begin < at) for at in t]
    table = pd.DataFrame({"t_s": t, "link": "s1-s2", "bytes": np.array(sent) * RATE / 8, "backlog_bytes": 30_000})
    assert verdict._work_conservation(table, sending(), made())["status"] != "ok"
    assert verdict._work_conservation(table, sending(*phases), made())["status"] == "ok"
    assert verdict._shaper_exactness(table, sending(), made())[0]["status"] == "invalid"
    assert verdict._shaper_exactness(table, sending(*phases), made())[0]["status"] == "not evaluated"
    overlapping = [(begin, end + 0.02) for begin, end in phases]
    assert verdict._shaper_exactness(table, sending(*overlapping), made())[0]["status"] == "invalid"


def test_a_counter_moves_in_whole_packets() -> None:
    """Seven jumbo frames and a fraction go in 10 ms of 50 Mbit/s: six in a sample are no pause, four are."""
    t = np.arange(0, 2, 0.01)
    exact = np.floor(t * 50e6 / 8 / 9014) * 9014
    slow = made(rate="50mbit", mtu=9000, bytes="2.8MB", buffer="20ms")
    table = pd.DataFrame({"t_s": t, "link": "s1-s2", "bytes": exact, "backlog_bytes": 30_000})
    assert verdict._work_conservation(table, sending(), slow)["value"] == pytest.approx(1.0)
    pausing = table.assign(bytes=np.cumsum(np.append(0, np.where(np.arange(len(t) - 1) % 2, 10, 4))) * 9014)
    assert verdict._work_conservation(pausing, sending(), slow)["value"] == pytest.approx(0.5, abs=0.01)


def test_a_link_of_paced_senders_may_rest() -> None:
    dcqcn = made(cc=["mltcp_dcqcn"], ecn="20kB,40kB,10%")
    assert verdict._work_conservation(links(0.9), sending(), dcqcn)["status"] == "not evaluated"
    assert verdict._shaper_exactness(links(0.95), sending(), dcqcn)[0]["status"] == "invalid"


def test_an_idle_link_is_not_judged() -> None:
    idle = links(0.0, backlog=0)
    assert verdict._shaper_exactness(idle, sending(), made())[0]["status"] == "not evaluated"
    assert verdict._work_conservation(idle, sending(), made())["status"] == "not evaluated"


def test_a_link_is_judged_by_the_rate_of_the_moment() -> None:
    event = [
        {"at": "500ms", "link": "s1-s2", "rate": "250mbit"}, {"at": "1s", "link": "s1-s2", "state": "down"},
        {"at": "1500ms", "link": "s1-s2", "state": "up"},
    ]  # fmt: skip
    t = np.arange(0, 2, 0.01)
    rate = np.where(t <= 0.5, RATE, np.where((t <= 1.0) | (t > 1.5), RATE / 2, 0))
    rate[0] = 0
    table = pd.DataFrame({"t_s": t, "link": "s1-s2", "bytes": np.cumsum(rate / 8 * 0.01), "backlog_bytes": 30_000})
    changed = made(event=event)
    assert [row["status"] for row in verdict._shaper_exactness(table, sending(), changed)] == ["ok", "ok"]
    assert verdict._work_conservation(table, sending(), changed)["value"] == pytest.approx(1.0)
    assert verdict._shaper_exactness(table, sending(), made())[0]["status"] == "invalid"
    assert verdict._work_conservation(table, sending(), made())["status"] == "invalid"


def test_who_keeps_the_queue_short_is_judged_by_excess_alone() -> None:
    shy = made(cc=["bbr"])
    assert verdict._shaper_exactness(links(0.7), sending(), shy)[0]["status"] == "ok"
    assert verdict._work_conservation(links(0.7), sending(), shy)["status"] == "not evaluated"


def test_where_a_link_fails_losses_are_expected() -> None:
    counters = {"interface_dropped": 5, "interface_errors": 0, "softnet_dropped": 0, "packets": 1000}
    fails = made(event=[{"at": "1s", "link": "s1-s2", "state": "down"}])
    assert verdict._losses(counters, fails)["status"] == "not evaluated"
    assert verdict._losses(counters, made())["status"] == "invalid"


def test_a_ring_is_judged_by_excess_alone() -> None:
    ring = made(trace="resnet50", compute=None, bytes=None)
    assert verdict._shaper_exactness(links(0.7), sending(), ring)[0]["status"] == "ok"
    assert verdict._shaper_exactness(links(1.15), sending(), ring)[0]["status"] == "invalid"
    assert verdict._work_conservation(links(0.7), sending(), ring)["status"] == "not evaluated"


def test_behind_another_bottleneck_the_median_alone_is_judged() -> None:
    row = made(topo="star", jobs=1)
    through = links(1.0, stall_at=100).assign(link="h1-s1")
    assert [one["status"] for one in verdict._shaper_exactness(through, sending(), row)] == ["ok", "not evaluated"]
    assert verdict._shaper_exactness(links(0.95).assign(link="h1-s1"), sending(), row)[0]["status"] == "invalid"
    assert verdict._work_conservation(through, sending(), row)["status"] == "not evaluated"


@pytest.mark.parametrize(("seeded", "status"), [(True, "ok"), (False, "suspect")])
def test_paths_that_do_not_follow_from_the_seed_are_said(seeded: bool, status: str) -> None:
    assert verdict._paths({"paths_seeded": seeded})["status"] == status


def table(late_s: float = 0.0, size: int = 28_000_000, length_s: float = 0.9684) -> pd.DataFrame:
    rows = []
    for job in (0, 1):
        for index in range(30):
            for worker, sent in ((0, size), (1, 0)):
                rows.append((job, worker, index, index * length_s, (index + 1) * length_s, sent, late_s))
    return pd.DataFrame(rows, columns=["job", "worker", "iteration", "start_s", "end_s", "bytes", "late_s"])


@pytest.mark.parametrize(("late_s", "status"), [(0.001, "ok"), (0.015, "suspect"), (0.03, "invalid")])
def test_lateness_is_judged_against_the_compute_time(late_s: float, status: str) -> None:
    assert verdict._lateness(table(late_s), made())["status"] == status


def test_bytes_other_than_the_traces_are_invalid() -> None:
    assert verdict._fixed_volume(table(), made())["status"] == "ok"
    assert verdict._fixed_volume(table(size=27_999_999), made())["status"] == "invalid"
    assert verdict._fixed_volume(table().iloc[:-1], made())["status"] == "invalid"


@pytest.mark.parametrize(("length_s", "status"), [(0.97, "ok"), (0.985, "suspect"), (1.1, "invalid")])
def test_a_lone_job_must_take_its_ideal_time(length_s: float, status: str) -> None:
    alone = plan.plans(spec.read(None, {"compute": "500ms", "bytes": "28MB"}))[1]
    rows = table(length_s=length_s)
    assert verdict._lone_job(rows[rows["job"] == 0], alone)["status"] == status
    assert verdict._lone_job(rows, made())["status"] == "not applicable"


def test_an_older_kernel_says_what_else_works(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 0)
    monkeypatch.setattr(platform, "release", lambda: "6.1.0-28-amd64")
    with pytest.raises(MachineError, match=r"Linux 6\.4 or newer .* \(--cc reno cubic\)"):
        Host().check(made(cc=["mltcp_reno"]))
    Host().check(made(cc=["reno"]))

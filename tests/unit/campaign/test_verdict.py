"""Each invariant on tables where the answer is known."""

from __future__ import annotations

import json
import platform
import re
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pandas as pd
import pytest

from testbed import spec
from testbed.backends.host import Host
from testbed.campaign import seed_variation
from testbed.campaign.verdict import INVARIANTS, Case, judge
from testbed.core.errors import MachineError
from testbed.core.runs import documents
from testbed.core.runs.manifest import Manifest
from testbed.core.runs.plan import Plan
from testbed.core.runs.verdict import SLUGS
from testbed.linux import features
from testbed.linux.features import Features
from testbed.planning import plan
from tests.support.manifests import MEASURED, manifest

RATE = 500_000_000


def made(**fields: Any) -> Plan:
    return plan.plans(plan.resolve(spec.read(None, {"compute": "500ms", "bytes": "28MB", **fields})))[0]


def table(max_start_delay_s: float = 0.0, size: int = 28_000_000, length_s: float = 0.9684) -> pd.DataFrame:
    """Two jobs that send all the time."""
    rows = []
    for job in (0, 1):
        for index in range(30):
            for worker, sent in ((0, size), (1, 0)):
                begin = index * length_s
                rows.append((job, worker, index, begin, begin, begin + length_s, sent, max_start_delay_s))
    columns = ["job", "worker", "iteration", "start_s", "comm_start_s", "end_s", "bytes", "max_start_delay_s"]
    return pd.DataFrame(rows, columns=columns)


def sending(*phases: tuple[float, float]) -> pd.DataFrame:
    """When somebody sends."""
    return table().iloc[: len(phases)].assign(
        comm_start_s=[begin for begin, _ in phases], end_s=[end for _, end in phases], bytes=1
    )  # fmt: skip


def links(served: float, *, backlog: int = 30_000, stall_at: int | None = None) -> pd.DataFrame:
    """Two seconds of a busy link that sends ``served`` of its rate; one interval may stand still."""
    t = np.arange(0, 2, 0.01)
    sent = np.full(len(t), RATE / 8 * 0.01 * served)
    sent[0] = 0
    if stall_at is not None:
        sent[stall_at] = 0
    return of_bytes(np.cumsum(sent), t, backlog)


def of_bytes(sent: np.ndarray, t: np.ndarray, backlog: int = 30_000) -> pd.DataFrame:
    return pd.DataFrame({"t_s": t, "link": "s1-s2", "bytes": sent, "packets": sent // 1514, "backlog_bytes": backlog})


def told(planned: Plan, backend: str = "host", **fields: Any) -> Manifest:
    """A manifest of a run on this backend; an ``account`` of disturbances may say but what was refused."""
    if fields.get("disturbances") is not None:
        recorded = {"cores": [], "period_s": 0.001, "noted_from_s": 0.004, "ticks": 0, "cpu_s": 0.0}
        fields["disturbances"] = {**recorded, **fields["disturbances"]}
    return manifest(planned, backend=backend, clock="virtual" if backend == "uml" else "real", **fields)


def rows(
    identity: str,
    planned: Plan,
    *,
    iterations: pd.DataFrame | None = None,
    link: pd.DataFrame | None = None,
    flows: pd.DataFrame | None = None,
    backend: str = "host",
    disturbances: pd.DataFrame | None = None,
    account: dict[str, Any] | None = None,
    nics: pd.DataFrame | None = None,
    **measured: Any,
) -> list[dict[str, Any]]:
    """What is said under one id: those rows that apply."""
    case = Case(
        told(planned, backend, measured=measured, disturbances=account), table() if iterations is None else iterations, links(1.0) if link is None else link,
        pd.concat([known(0), known(1)]) if flows is None else flows, disturbances, nics=nics,
    )  # fmt: skip
    found = [msgspec.to_builtins(row) for row in judge(case).invariants if row.id == identity]
    found = [{"value": None, **row} for row in found]
    return [row for row in found if row["status"] != "not applicable"] or found[:1]


def test_the_documentation_lists_every_invariant() -> None:
    text = Path(__file__).parents[3].joinpath("docs/reference/invariants.md").read_text()
    listed = re.findall(r"^\| <a id=\"i\d+\"></a>`([a-z-]+)` \((I\d+)\) \|", text, re.MULTILINE)
    assert [identity for _, identity in listed] == list(dict.fromkeys(invariant.id for invariant in INVARIANTS))
    assert {identity: slug for slug, identity in listed} == SLUGS and len(set(SLUGS.values())) == len(SLUGS)


Beyond = tuple[str, float] | None  # a limit, and which side of it is trouble


def printed(cell: str) -> Beyond:
    """The limit in a cell of the table, as a number without a unit."""
    if re.fullmatch("any( other| more)?", cell):
        return "above", 0
    if cell == "no":
        return "below", 1
    if (number := re.search(r"([<>]) ([\d.]+) ?(%|ms|s)?", cell)) is None:
        return None
    return {">": "above", "<": "below"}[number[1]], float(number[2]) * {"%": 0.01, "ms": 1e-3}.get(number[3], 1)


def printed_limits(text: str) -> list[tuple[str, Beyond, Beyond]]:
    """Id, suspect and invalid of each row of the table that has limits; a cell may have several: ``> 80 %; > 1 %``."""
    found = []
    identity = ""
    for line in re.findall(r"^\| (?:<a.*</a>`[a-z-]+` \(I\d+\) )? ?\|.*\|$", text, re.MULTILINE):
        first, *_, suspect, invalid = (cell.strip() for cell in line.strip("|").split("|"))
        identity = first.rpartition("(")[2].rstrip(")") or identity
        for one in zip(suspect.split(";"), invalid.split(";"), strict=True):
            both = printed(one[0].strip()), printed(one[1].strip())
            if both != (None, None):
                found.append((identity, *both))
    return found


def test_the_documentation_prints_the_limits_in_force() -> None:
    """One that holds under virtual time alone is printed, too; where both are the same, as what makes a run invalid."""
    cases = [
        Case(
            told(made(), backend),
            *[pd.DataFrame()] * 3,
        )
        for backend in ("host", "uml")
    ]
    expected: list[tuple[object, ...]] = []
    for one in INVARIANTS:
        if one.id == "I10":  # an experiment's, over its seeds
            expected.append(
                (one.id, ("above", seed_variation.LIMITS.suspect), ("above", seed_variation.LIMITS.invalid))
            )
        if one.limits is None:
            continue
        real, virtual = (one.limits(case) if callable(one.limits) else one.limits for case in cases)
        suspect = real.suspect if real.suspect is not None else virtual.suspect
        invalid = real.invalid if real.invalid is not None else virtual.invalid
        pair = (None if suspect == invalid else suspect, invalid)
        expected.append((one.id, *(None if each is None else (real.side, pytest.approx(each)) for each in pair)))
    text = Path(__file__).parents[3].joinpath("docs/reference/invariants.md").read_text()
    assert printed_limits(text) == expected


def test_every_invariant_has_its_row() -> None:
    verdict = judge(Case(told(made()), table(), links(1.0), pd.DataFrame()))
    assert [row.id for row in verdict.invariants] == [invariant.id for invariant in INVARIANTS]
    assert verdict.verdict == "valid"
    written = json.loads(documents.encode(verdict))["invariants"]
    assert all(set(row) - {"note"} == {"id", "name", "value", "limit", "status"} for row in written)


@pytest.mark.parametrize(("bps", "status"), [(2e9, "ok"), (1e9, "suspect"), (6e8, "invalid"), (None, "not evaluated")])
def test_an_unshaped_path_has_room(bps: float | None, status: str) -> None:
    assert rows("I2", made(), capacity_bps=bps)[0]["status"] == status


@pytest.mark.parametrize(("served", "status"), [(1.0, "ok"), (0.985, "suspect"), (1.02, "suspect"), (0.95, "invalid")])
def test_a_wrong_rate_is_told(served: float, status: str) -> None:
    assert rows("I3", made(), link=links(served))[0]["status"] == status


def test_a_link_that_stood_still_once_is_told_apart() -> None:
    exact, worst = rows("I3", made(), link=links(1.0, stall_at=100))
    assert worst["value"] == pytest.approx(0.1)
    assert worst["status"] != "invalid"
    assert exact["value"] == pytest.approx(0, abs=1e-6)
    assert rows("I4", made(), link=links(1.0, stall_at=100))[0]["status"] == "ok"


@pytest.mark.parametrize("account", [None, {"refused": []}, {"refused": ["SCHED_FIFO: Operation not permitted"]}])
def test_one_bad_window_in_thirty_seconds_makes_no_run_invalid(account: dict[str, Any] | None) -> None:
    """100 ms without a packet, whether or not disturbances are known; under virtual time nothing may stand still."""
    t = np.arange(0, 30, 0.01)
    stood = of_bytes(np.cumsum(np.where((t > 5) & (t <= 5.1), 0, RATE / 8 * 0.01)), t)

    def verdict(backend: str) -> tuple[str, str]:
        nothing = pd.DataFrame(columns=["start_s", "end_s", "core", "kind", "waited_s"])
        case_manifest = told(made(), backend, disturbances=account)
        found = judge(Case(case_manifest, table(), stood, pd.DataFrame(), None if account is None else nothing))
        (worst,) = [
            row for row in found.invariants if row.name == "deviation from the shaped rate in busy 100 ms (maximum)"
        ]
        assert worst.value is not None and worst.value > 0.8
        return found.verdict, worst.status

    assert verdict("host") == ("suspect", "suspect")
    assert verdict("uml") == ("invalid", "invalid")


def test_one_late_sample_is_no_excess() -> None:
    """Of jobs that pause by themselves: it was taken 30 ms after its time, in thirty seconds."""
    ring = made(trace="resnet50", compute=None, bytes=None)
    t = np.arange(0, 30, 0.01)
    late = of_bytes(np.cumsum(np.full(len(t), RATE / 8 * 0.01)) + np.where(t == t[500], RATE / 8 * 0.03, 0), t)
    assert rows("I3", ring, link=late)[0]["status"] == "ok"


@pytest.mark.parametrize("sample", ["1ms", "10ms", "50ms"])
def test_under_virtual_time_no_interval_carries_more_than_its_rate(sample: str) -> None:
    """The bucket is two frames of 1514 bytes; what a table rounds (1 us, 1 ns a packet) is no excess."""
    exact = links(1.0).query("t_s > 0.2")
    assert rows("I3", made(sample=sample), link=exact, backend="uml")[0]["status"] == "ok"
    burst = exact.assign(bytes=exact["bytes"] + np.where(exact["t_s"] > 1, 3_028, 0))
    assert rows("I3", made(sample=sample), link=burst, backend="uml")[0]["status"] == "ok"
    more = exact.assign(bytes=exact["bytes"] + np.where(exact["t_s"] > 1, 3_028 + 1_514, 0))
    found = rows("I3", made(sample=sample), link=more, backend="uml")[0]
    assert found["status"] == "invalid" and found["value"] == pytest.approx(1_514, abs=100)


def test_a_slow_link_under_virtual_time_shows_where_samples_are_close() -> None:
    def statuses(sample: str) -> list[str]:
        return [row["status"] for row in rows("I3", made(sample=sample), link=links(0.9), backend="uml")]

    assert statuses("10ms") == ["ok", "invalid", "suspect"]
    assert statuses("50ms") == ["ok", "not evaluated", "not evaluated"]
    assert rows("I4", made(sample_interval="10ms"), link=links(0.9), backend="uml")[0]["status"] == "invalid"
    assert rows("I4", made(sample_interval="50ms"), link=links(0.9), backend="uml")[0]["status"] == "not evaluated"


def test_between_two_phases_a_link_may_rest() -> None:
    """Jobs of 65 ms that follow each other within 5 ms: the queue goes and comes between two samples."""
    phases = [(0.07 * i, 0.07 * i + 0.065) for i in range(30)]
    t = np.arange(0, 2, 0.01)
    sent = [sum(min(end, at) - begin for begin, end in phases if begin < at) for at in t]
    resting = of_bytes(np.array(sent) * RATE / 8, t)
    always, apart = sending((0.0, 9.0)), sending(*phases)
    assert rows("I4", made(), link=resting, iterations=always)[0]["status"] != "ok"
    assert rows("I4", made(), link=resting, iterations=apart)[0]["status"] == "ok"
    assert rows("I3", made(), link=resting, iterations=always)[0]["status"] == "invalid"
    assert rows("I3", made(), link=resting, iterations=apart)[0]["status"] == "not evaluated"
    overlapping = sending(*((begin, end + 0.02) for begin, end in phases))
    assert rows("I3", made(), link=resting, iterations=overlapping)[0]["status"] == "invalid"


def test_a_counter_moves_in_whole_packets() -> None:
    """Seven jumbo frames and a fraction go in 10 ms of 50 Mbit/s: six in a sample are no pause, four are."""
    t = np.arange(0, 2, 0.01)
    exact = np.floor(t * 50e6 / 8 / 9014) * 9014
    slow = made(rate="50mbit", mtu=9000, bytes="2.8MB", buffer="20ms")
    assert rows("I4", slow, link=of_bytes(exact, t))[0]["value"] == pytest.approx(1.0)
    pausing = np.cumsum(np.append(0, np.where(np.arange(len(t) - 1) % 2, 10, 4))) * 9014
    assert rows("I4", slow, link=of_bytes(pausing, t))[0]["value"] == pytest.approx(0.5, abs=0.01)


def test_a_link_of_paced_senders_may_rest() -> None:
    dcqcn = made(cc=["mltcp_dcqcn"], ecn="20kB,40kB,10%")
    assert rows("I4", dcqcn, link=links(0.9))[0]["status"] == "not evaluated"
    assert rows("I3", dcqcn, link=links(0.95))[0]["status"] == "invalid"


def test_an_idle_link_is_not_judged() -> None:
    idle = links(0.0, backlog=0)
    assert rows("I3", made(), link=idle)[0]["status"] == "not evaluated"
    assert rows("I4", made(), link=idle)[0]["status"] == "not evaluated"


CHANGES = [
    {"at": "500ms", "link": "s1-s2", "rate": "250mbit"}, {"at": "1s", "link": "s1-s2", "state": "down"},
    {"at": "1500ms", "link": "s1-s2", "state": "up"},
]  # fmt: skip


@pytest.mark.parametrize("backend", ["host", "uml"])
def test_a_link_is_judged_by_the_rate_of_the_moment(backend: str) -> None:
    t = np.arange(0, 2, 0.01)
    rate = np.where(t <= 0.5, RATE, np.where((t <= 1.0) | (t > 1.5), RATE / 2, 0))
    rate[0] = 0
    changing, changed = of_bytes(np.cumsum(rate / 8 * 0.01), t), made(event=CHANGES)
    found = rows("I3", changed, link=changing, backend=backend)
    assert {row["status"] for row in found} == {"ok"}
    assert rows("I4", changed, link=changing)[0]["value"] == pytest.approx(1.0)
    assert "invalid" in {row["status"] for row in rows("I3", made(), link=changing, backend=backend)}
    assert rows("I4", made(), link=changing)[0]["status"] == "invalid"
    unchanged = links(1.0)
    assert rows("I3", changed, link=unchanged, backend=backend)[0]["status"] == "invalid"


@pytest.mark.parametrize(("left", "status"), [([], "ok"), (["s1-s2 at 1.5 s"], "suspect")])
def test_an_event_that_did_not_happen_is_said(left: list[str], status: str) -> None:
    (found,) = rows("I15", made(event=CHANGES), sampler={**MEASURED["sampler"], "events_missed": left})
    assert (found["value"], found["status"]) == (len(left), status)
    assert all(name in found["note"] for name in left)
    assert rows("I15", made())[0]["status"] == "not applicable"


def test_who_keeps_the_queue_short_is_judged_by_excess_alone() -> None:
    (excess, *others) = rows("I3", made(cc=["bbr"]), link=links(0.7))
    assert excess["status"] == "ok" and {row["status"] for row in others} == {"not evaluated"}
    assert rows("I4", made(cc=["bbr"]), link=links(0.7))[0]["status"] == "not evaluated"


def test_where_a_link_fails_losses_are_expected() -> None:
    counters = {"interface_dropped": 5, "interface_errors": 0, "softnet_dropped": 0, "packets": 1000}
    assert rows("I5", made(event=CHANGES), counters=counters)[0]["status"] == "not evaluated"
    assert rows("I5", made(), counters=counters)[0]["status"] == "invalid"
    assert rows("I5", made(), counters={**counters, "packets": 10_000_000})[0]["status"] == "suspect"
    assert rows("I5", made())[0]["status"] == "ok"


def test_a_ring_is_judged_by_excess_alone() -> None:
    ring = made(trace="resnet50", compute=None, bytes=None)
    assert rows("I3", ring, link=links(0.7))[0]["status"] == "ok"
    assert rows("I3", ring, link=links(1.05))[0]["status"] == "suspect"
    assert rows("I3", ring, link=links(1.15))[0]["status"] == "invalid"
    assert rows("I4", ring, link=links(0.7))[0]["status"] == "not evaluated"


def test_behind_another_bottleneck_the_median_alone_is_judged() -> None:
    star = made(topo="star", jobs=1)
    through = links(1.0, stall_at=100).assign(link="h1-s1")
    assert [one["status"] for one in rows("I3", star, link=through)] == ["ok", "not evaluated"]
    assert rows("I3", star, link=links(0.95).assign(link="h1-s1"))[0]["status"] == "invalid"
    assert rows("I4", star, link=through)[0]["status"] == "not evaluated"


@pytest.mark.parametrize(("seeded", "status"), [(True, "ok"), (False, "suspect")])
def test_paths_that_do_not_follow_from_the_seed_are_said(seeded: bool, status: str) -> None:
    choice = made(topo="leafspine,2,2,2")
    leaf = links(1.0).assign(link="l1-s1")
    assert rows("I14", choice, link=leaf, paths_seeded=seeded)[0]["status"] == status
    assert rows("I14", made())[0]["status"] == "not applicable"


@pytest.mark.parametrize(("max_start_delay_s", "status"), [(0.001, "ok"), (0.015, "suspect"), (0.03, "invalid")])
def test_lateness_is_judged_against_the_compute_time(max_start_delay_s: float, status: str) -> None:
    assert rows("I6", made(), iterations=table(max_start_delay_s))[0]["status"] == status


@pytest.mark.parametrize(("busy", "status"), [(0.5, "ok"), (0.9, "suspect"), (0.97, "invalid")])
def test_cores_need_room(busy: float, status: str) -> None:
    sampler = {**MEASURED["sampler"], "busiest_core": [busy], "steal": [busy / 20 - 0.02]}
    assert [row["status"] for row in rows("I7", made(), sampler=sampler)] == [
        status, {"ok": "ok", "suspect": "suspect", "invalid": "suspect"}[status],
    ]  # fmt: skip
    assert rows("I7", made(), sampler={**sampler, "steal": [0.06]})[1]["status"] == "invalid"
    assert [row["status"] for row in rows("I7", made(), sampler=sampler, backend="uml")] == ["ok", "ok"]


@pytest.mark.parametrize(("rtt_us", "status"), [(60, "ok"), (400, "suspect"), (700, "invalid")])
def test_an_idle_round_trip_is_short(rtt_us: float, status: str) -> None:
    assert rows("I8", made(buffer="1ms"), rtt_us_after=rtt_us)[0]["status"] == status


def test_bytes_other_than_the_traces_are_invalid() -> None:
    assert rows("I9", made())[0]["status"] == "ok"
    assert rows("I9", made(), iterations=table(size=27_999_999))[0]["status"] == "invalid"
    assert rows("I9", made(), iterations=table().iloc[:-1])[0]["status"] == "invalid"


@pytest.mark.parametrize(("length_s", "status"), [(0.97, "ok"), (0.985, "suspect"), (1.1, "invalid")])
def test_a_lone_job_must_take_its_ideal_time(length_s: float, status: str) -> None:
    alone = plan.plans(plan.resolve(spec.read(None, {"compute": "500ms", "bytes": "28MB"})))[1]
    every = table(length_s=length_s)
    assert rows("I11", alone, iterations=every[every["job"] == 0])[0]["status"] == status
    assert rows("I11", made(), iterations=every)[0]["status"] == "not applicable"


def test_what_the_machine_did_to_a_lone_job_is_not_the_networks() -> None:
    """A stall of three seconds in one of its iterations: left out where it was seen, else a tenth too long."""
    alone = plan.plans(plan.resolve(spec.read(None, {"compute": "500ms", "bytes": "28MB"})))[1]
    stalled = table().query("job == 0")
    begin = stalled.loc[stalled["iteration"] == 10, "start_s"].iloc[0]
    stalled.loc[stalled["iteration"] > 10, ["start_s", "comm_start_s", "end_s"]] += 3
    stalled.loc[stalled["iteration"] == 10, "end_s"] += 3
    seen = pd.DataFrame(
        [(begin + 0.1, begin + 3.1, 0, "program", 3.0)], columns=["start_s", "end_s", "core", "kind", "waited_s"]
    )
    (blind,), (judged,) = (
        rows("I11", alone, iterations=stalled),
        rows("I11", alone, iterations=stalled, disturbances=seen),
    )
    assert blind["status"] == "invalid" and judged["status"] == "ok", (blind, judged)
    every = seen.assign(start_s=0.0, end_s=100.0)
    assert rows("I11", alone, iterations=stalled, disturbances=every)[0]["status"] == "not evaluated"


@pytest.mark.parametrize(("drift_s", "status"), [(1e-4, "ok"), (-0.1, "suspect"), (2.0, "invalid")])
def test_clocks_agree(drift_s: float, status: str) -> None:
    assert rows("I12", made(), clock_drift_s=drift_s)[0]["status"] == status


@pytest.mark.parametrize(
    ("repairs", "status"), [(1, "ok"), (30, "suspect"), (300, "invalid"), (None, "not applicable")]
)
def test_skipped_calls_are_counted(repairs: int | None, status: str) -> None:
    assert rows("I13", made(), congestion_control_repairs=repairs)[0]["status"] == status


def known(job: int, *, until_s: float = 99.0, since_s: float = 0.0) -> pd.DataFrame:
    """Samples of a job's flow, in which r is known between two times."""
    t = np.arange(0, 29, 0.01)
    ratio = np.where((t >= since_s) & (t < until_s), 0.5, np.nan)
    return pd.DataFrame({"t_s": t, "job": job, "worker": 0, "flow": "0-1", "mltcp_r": ratio})


def test_mltcp_must_be_in_force() -> None:
    """Two jobs of 30 iterations of 0.97 s, all of which communicate: settled from iteration 15 on, at 14.5 s."""

    def found(*flows: pd.DataFrame, **fields: Any) -> dict[str, Any]:
        return rows("I16", made(cc=["mltcp_reno"], **fields), flows=pd.concat(flows))[0]

    assert found(known(0, since_s=2), known(1, since_s=14.4)) | {"value": 1, "status": "ok"} == found(
        known(0), known(1)
    )
    lost = found(known(0), known(1, until_s=28.0))
    assert lost["status"] == "suspect" and lost["value"] == pytest.approx(13.5 / 14.5, abs=0.01)
    never = found(known(0), known(1, since_s=99))
    assert (never["value"], never["status"]) == (0, "suspect")  # and never invalid
    assert rows("I16", made(), flows=known(0, since_s=99))[0]["status"] == "not applicable"


def test_a_run_too_short_for_learning_is_not_said_to_have_mltcp_in_force() -> None:
    short = table().query("iteration < 4")
    flows = pd.concat([known(0), known(1)])
    assert rows("I16", made(cc=["mltcp_reno"]), iterations=short, flows=flows)[0]["status"] == "not evaluated"


@pytest.mark.parametrize(("held_s", "status"), [(0.05, "ok"), (0.11, "suspect"), (9.0, "suspect")])
def test_only_congestion_control_limits_a_sender(held_s: float, status: str) -> None:
    free = {"job": 0, "busy_s": 90.0, "receive_window_s": 0.0, "send_buffer_s": 0.0}
    held = {"job": 1, "busy_s": 10.0, "receive_window_s": held_s / 2, "send_buffer_s": held_s / 2}
    (found,) = rows("I17", made(), senders=[free, held])
    assert found["status"] == status and found["value"] == pytest.approx(held_s / 10)
    assert "job 1" in found["note"]


def test_stalls_are_recorded_by_kind() -> None:
    timeouts, probes, spurious, _own = rows("I18", made())
    assert (timeouts["value"], probes["value"], timeouts["limit"]) == (2, 7, None)
    assert spurious["status"] == "not evaluated" and "TCPSpuriousRTOs" in spurious["note"]


def test_what_hosts_drop_themselves_is_recorded() -> None:
    """A stall of 200 ms that the kernel counts nowhere; what a switch drops is no such thing."""
    first, *_ = made().jobs[0].hosts
    sampled = pd.DataFrame({"t_s": [0.0, 1.0] * 2, "link": [f"{first}-s1"] * 2 + ["s1-s2"] * 2, "drops": [0, 5, 0, 9]})
    *_, own = rows("I18", made(), link=links(1.0).assign(drops=0), nics=sampled)
    assert (own["value"], own["limit"], own["note"]) == (5, None, f"most before {first}-s1: 5")
    assert [row for row in rows("I18", made(), link=links(1.0).assign(drops=0)) if "own queues" in row["name"]] == []


DATAGRAMS = {"job": 0, "sent": 900, "received": 900, "burst": 4, "not_sent": 0, "overflowed": 0, "wake_ups": 300}


@pytest.mark.parametrize(
    ("changed", "statuses"),
    [({}, ["ok", "ok"]), ({"overflowed": 1}, ["suspect", "ok"]), ({"not_sent": 2}, ["suspect", "ok"]), ({"burst": 12}, ["ok", "ok"]),
     ({"burst": 13}, ["ok", "suspect"])],
)  # fmt: skip
def test_no_host_drops_its_own_datagrams_nor_sends_many_at_once(changed: dict[str, int], statuses: list[str]) -> None:
    counted = [{**DATAGRAMS, "worker": 0}, {**DATAGRAMS, "worker": 1, **changed}]
    found = rows("I24", made(system=["ltp"], jobs=1, collective="parameter_server"), backend="uml", datagrams=counted)
    assert [row["status"] for row in found] == statuses
    assert found[1]["value"] == max(one["burst"] for one in counted)
    assert {row["status"] for row in rows("I24", made())} <= {"not applicable"}


@pytest.mark.parametrize(
    ("system", "rate", "backend", "most"),
    [("ltp", "100mbit", "uml", 12.0), ("mlt", "1gbit", "uml", 13.5), ("ltp", "10gbit", "uml", 28.5),
     ("ltp:coalesce=100us", "10gbit", "uml", 95.1), ("mlt:coalesce=0us", "10gbit", "uml", 11.8), ("ltp", "10gbit", "host", None)],
)  # fmt: skip
def test_how_many_may_leave_at_once(system: str, rate: str, backend: str, most: float | None) -> None:
    """Three and what gains add, and what the link carries in a rest; on a real clock as many as a late timer has to make up for."""
    planned = made(system=[system], rate=rate, jobs=1, collective="parameter_server")
    _, found = rows("I24", planned, backend=backend, datagrams=[{**DATAGRAMS, "worker": 0, "burst": 64}])
    assert found.get("limit") == ({"suspect above": most} if most else {})
    assert found["status"] == ("suspect" if most and most < 64 else "ok")


@pytest.mark.parametrize(("dropped", "status"), [(0, "ok"), (3, "suspect"), (300, "invalid")])
def test_receivers_drop_nothing(dropped: int, status: str) -> None:
    (found,) = rows("I19", made(), tcp={"TCPBacklogDrop": dropped})
    assert found["status"] == status
    assert ("TCPBacklogDrop" in found.get("note", "")) == bool(dropped)


def test_edges_are_recorded() -> None:
    fast = made(nic="inf")
    assert rows("I20", fast)[0]["value"] is None and "not shaped" in rows("I20", fast)[0]["note"]
    assert rows("I20", made(nic="2gbit"))[0]["value"] == 4
    star = made(topo="star", jobs=1)
    assert rows("I20", star, link=links(1.0).assign(link="h1-s1"))[0]["value"] == 1


def test_what_an_older_testbed_did_not_record_is_not_evaluated() -> None:
    older = told(made(), "uml", measured={"tcp": None, "senders": None})
    found = {row.id: row.status for row in judge(Case(older, table(), links(1.0), known(0))).invariants}
    assert {found[name] for name in ("I17", "I18", "I19")} == {"not evaluated"}


def test_an_older_kernel_says_what_else_works(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 0)
    monkeypatch.setattr(platform, "release", lambda: "6.1.0-28-amd64")
    monkeypatch.setattr(features, "probe", Features)  # which takes root
    with pytest.raises(MachineError, match=r"Linux 6\.4 or newer .* \(--system reno cubic\)"):
        Host().check(made(cc=["mltcp_reno"]))
    Host().check(made(cc=["reno"]))

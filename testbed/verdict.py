"""Can this run be trusted? Each invariant of docs/fidelity.md: value, limits, status.

An invariant that could not be evaluated is listed as such with the reason, never as passed.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from analysis.metrics import alone, iteration_times
from testbed.plan import Plan

ORDER = ("valid", "suspect", "invalid")
BUSY_WINDOW_S = 0.1
EVENT_S = 0.02  # within which, against a real clock, an event happens
QUEUED_S = 0.2  # of less, two samples with a queue may belong to different phases
IN_A_ROW = "behind another bottleneck a queue comes and goes between two samples"
PACED = ("dcqcn", "mltcp_dcqcn")
AT_RATE = 0.95  # an interval with a queue counts as served if it carried this share of the rate


def judge(iterations: pd.DataFrame, links: pd.DataFrame, plan: Plan, manifest: dict[str, Any]) -> dict[str, Any]:
    """The verdict on a run (its ``iterations.csv`` and ``links.csv``): the worst of its invariants."""
    measured = manifest["measured"]
    sampler, counters = measured["sampler"], measured["counters"]
    virtual = manifest["substrate"] == "uml"
    rows = [
        _row("I1", "settings applied and read back", len(manifest["settings"]), "all", "ok", "a mismatch stops the run"),
        _by_construction("I2", "unshaped capacity ÷ needed rate")
        if virtual
        else _below("I2", "unshaped capacity ÷ needed rate", measured["capacity_bps"] / plan.needed_bps, 3, 1.5)
        if measured["capacity_bps"] and plan.needed_bps
        else _unknown("I2", "unshaped capacity ÷ needed rate", "capacity was not measured"),
        *_shaper_exactness(links, iterations, plan),
        _work_conservation(links, iterations, plan),
        _losses(counters, plan),
        _lateness(iterations, plan),
        *([_by_construction("I7", "CPU room")] if virtual else _cpu_room(sampler, plan)),
        _base_rtt(plan, measured),
        _skipped_calls(iterations, plan, measured),
        _fixed_volume(iterations, plan),
        _row("I10", "repeatability over seeds", None, None, "not applicable", "belongs to the experiment"),
        _lone_job(iterations, plan),
        _by_construction("I12", "monotonic against wall clock")
        if virtual
        else _above("I12", "monotonic against wall clock, drift in s", abs(measured["clock_drift_s"]), 1e-3, 1.0),
        *([_paths(measured)] if plan.multipath else []),
    ]  # fmt: skip
    worst = max((ORDER.index(row["status"]) for row in rows if row["status"] in ORDER), default=0)
    return {"version": 1, "verdict": ORDER[worst], "invariants": rows}


def _row(identity: str, name: str, value: Any, limit: Any, status: str, note: str = "") -> dict[str, Any]:
    row = {"id": identity, "name": name, "value": value, "limit": limit, "status": status}
    return {**row, "note": note} if note else row


def _by_construction(identity: str, name: str) -> dict[str, Any]:
    return _row(identity, name, None, None, "ok", "by construction: computing takes no virtual time")


def _cpu_room(sampler: dict[str, Any], plan: Plan) -> list[dict[str, Any]]:
    busiest = _percentile(sampler["busiest_core"], 95)
    training = any(job.program is not None for job in plan.jobs)
    return [
        # Real training fills the cores, at the lowest priority: then a busy core tells less, and I3 and I5 must do.
        _above("I7", "busiest core (95th percentile of seconds)", busiest, 0.80, 1.01 if training else 0.95),
        _above("I7", "CPU time stolen by the hypervisor", _percentile(sampler["steal"], 95), 0.01, 0.05),
    ]


def _events(plan: Plan, sampler: dict[str, Any]) -> list[dict[str, Any]]:
    """I15: what the plan wants to happen to links did happen."""
    if not plan.events:
        return []
    missed = sampler["events_missed"]
    note = "the run had ended before: " + ", ".join(missed) if missed else ""
    return [
        _row(
            "I15", "events that did not happen", len(missed), {"suspect above": 0}, "suspect" if missed else "ok", note
        )
    ]


def _losses(counters: dict[str, int], plan: Plan) -> dict[str, Any]:
    """I5: packets lost anywhere but in a bottleneck's queue."""
    name = "packets lost where none should be, share"
    if any(event.up is False for event in plan.events):
        return _unknown("I5", name, "a link fails, with what is on it")
    lost = counters["interface_dropped"] + counters["interface_errors"] + counters["softnet_dropped"]
    return _above("I5", name, lost / max(1, counters["packets"]), 0, 1e-3)


def _unknown(identity: str, name: str, reason: str) -> dict[str, Any]:
    return _row(identity, name, None, None, "not evaluated", reason)


def _above(identity: str, name: str, value: float | None, suspect: float, invalid: float) -> dict[str, Any]:
    """Trouble above the limits."""
    if value is None:
        return _unknown(identity, name, "the run was too short")
    status = "invalid" if value > invalid else "suspect" if value > suspect else "ok"
    return _row(identity, name, value, {"suspect above": suspect, "invalid above": invalid}, status)


def _below(identity: str, name: str, value: float, suspect: float, invalid: float) -> dict[str, Any]:
    """Trouble below the limits."""
    status = "invalid" if value < invalid else "suspect" if value < suspect else "ok"
    return _row(identity, name, value, {"suspect below": suspect, "invalid below": invalid}, status)


def _percentile(values: list[float], which: float) -> float | None:
    return float(np.percentile(values, which)) if values else None


def _queue_stays(plan: Plan) -> bool:
    """Whether a queue, once seen, is there until the next sample, too.

    Full-duplex rings pause by themselves; after a random loss, or where the window must
    fill a long path as well, the queue runs dry for a while. Some congestion controls mean to keep it short.
    """
    return (
        not _shy(plan)
        and not plan.wires
        and all(op["kind"] == "compute" or op["algorithm"] == "send_recv" for job in plan.jobs for op in job.operations)
        and all(job.program is None and job.leave_ns is None for job in plan.jobs)
    )


def _shy(plan: Plan) -> list[str]:
    """The congestion controls of its jobs that leave a link idle at times: they go by delay, or by a rate they measure."""
    return [cc.name for cc in plan.ccs if cc.name in ("bbr", "vegas", "nv", "lp", "cdg")]


def _shaper_exactness(links: pd.DataFrame, iterations: pd.DataFrame, plan: Plan) -> list[dict[str, Any]]:
    """I3: bytes out of the shaper in every busy 100 ms ÷ rate.

    Judged twice: the median tells a wrong rate, the worst a link that stood still (how
    often that happens is I4's matter: a hiccup of 2 ms moves ten overlapping windows by
    2 %, and a result by nothing). Of jobs that pause by themselves only an excess over the rate can be told.
    """
    ratios: list[float] = []
    for name, rows in links.groupby("link"):
        t, sent, backlog = (rows[column].to_numpy() for column in ("t_s", "bytes", "backlog_bytes"))
        rate_bps, past = _rate(plan, str(name), t)
        idle = np.cumsum((backlog == 0) | np.append(True, ~_within_a_phase(iterations, t)))
        until = np.searchsorted(t, t + BUSY_WINDOW_S)
        start = np.flatnonzero(until < len(t))
        start = start[(past[until[start]] == past[start]) & (rate_bps[start] > 0)]
        if _queue_stays(plan):
            start = start[(idle[until[start]] == idle[start]) & (backlog[start] > 0)]
        span = t[until[start]] - t[start]
        ratios += list((sent[until[start]] - sent[start]) * 8 / (span * rate_bps[start]))
    name = "shaped rate in busy 100 ms, off by (median)"
    if not ratios:
        return [_unknown("I3", name, "no queue lasted for 100 ms")]
    off = np.array(ratios) - 1
    if not _queue_stays(plan):
        return [_above("I3", "rate in any 100 ms above the shaped rate by", float(max(0.0, off.max())), 0.03, 0.10)]
    return [
        _above("I3", name, float(np.median(abs(off))), 0.01, 0.03),
        _above("I3", "the same, the worst", float(abs(off).max()), 0.10, 0.30)
        if plan.in_a_row <= 1
        else _unknown("I3", "the same, the worst", IN_A_ROW),
    ]


def _work_conservation(links: pd.DataFrame, iterations: pd.DataFrame, plan: Plan) -> dict[str, Any]:
    """I4: share of the time with a queue in which the bottleneck sends at its rate."""
    name = "share of queued time in which the bottleneck sends at its rate"
    if not _queue_stays(plan):
        return _unknown("I4", name, "with rings, delay, loss or BBR a queue comes and goes between two samples")
    if plan.in_a_row > 1:
        return _unknown("I4", name, IN_A_ROW)
    if any(cc.name in PACED for cc in plan.ccs):
        return _unknown(
            "I4", name, "DCQCN sends at a rate of its own, with which a queue comes and goes between two samples"
        )
    served = queued = 0.0
    for link, rows in links.groupby("link"):
        t, sent, backlog = (rows[column].to_numpy() for column in ("t_s", "bytes", "backlog_bytes"))
        rate_bps, past = _rate(plan, str(link), t)
        busy = (
            _within_a_phase(iterations, t)
            & (backlog[:-1] > 0)
            & (backlog[1:] > 0)
            & (past[:-1] == past[1:])
            & (rate_bps[:-1] > 0)
        )
        span = np.diff(t)[busy]
        whole = np.diff(sent)[busy] + plan.link.mtu  # a sample may fall into a packet, which counts when it has left
        queued += span.sum()
        served += span[whole * 8 >= AT_RATE * rate_bps[:-1][busy] * span].sum()
    if queued < QUEUED_S:
        return _unknown("I4", name, f"there was a queue for {queued:.2g} s only")
    return _below("I4", name, served / queued, 0.98, 0.95)


def _within_a_phase(iterations: pd.DataFrame, t_s: np.ndarray) -> np.ndarray:
    """Whether somebody sends all the way from one of these times to the next.

    Between two phases that follow each other closely the link is idle, though both samples around may show a queue.
    """
    sent = iterations[iterations["bytes"] > 0].sort_values("comm_start_s")
    if sent.empty:
        return np.zeros(len(t_s) - 1, dtype=bool)
    latest_end = np.maximum.accumulate(sent["end_s"].to_numpy())
    begun = np.searchsorted(sent["comm_start_s"].to_numpy(), t_s[:-1], side="right")
    return np.asarray((begun > 0) & (latest_end[begun - 1] >= t_s[1:]))


def _rate(plan: Plan, link: str, t_s: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The rate of ``link`` in bit/s at these times (0 while it has failed, or just changes), and how many events are past."""
    rate_bps, past = np.full(len(t_s), float(plan.bottlenecks[link].rate_bps)), np.zeros(len(t_s), dtype=int)
    working = np.ones(len(t_s), dtype=bool)
    for event in (event for event in plan.events if event.link == link):
        at_s = event.at_ns / 1e9
        after = t_s >= at_s
        past += after
        working[after & (t_s < at_s + EVENT_S)] = False
        if event.rate_bps is not None:
            rate_bps[after] = event.rate_bps
        if event.up is not None:
            working[t_s >= at_s + EVENT_S] = event.up
    return rate_bps * working, past


def _lateness(iterations: pd.DataFrame, plan: Plan) -> dict[str, Any]:
    """I6: how late phases began, against the compute time of an iteration."""
    compute_s = {job.job: sum(op.get("duration_ns", 0) for op in job.operations) / 1e9 for job in plan.jobs}
    name = "lateness of a phase ÷ compute time, 99th percentile"
    rows = iterations[iterations["job"].map(compute_s) > 0]
    if rows.empty:
        return _unknown("I6", name, "nothing is computed by sleeping")
    return _above("I6", name, float(np.percentile(rows["late_s"] / rows["job"].map(compute_s), 99)), 0.02, 0.05)


def _base_rtt(plan: Plan, measured: dict[str, Any]) -> dict[str, Any]:
    """I8: idle round trip before and after, off from the expected one, against the RTT under load.

    Without emulated delay the expected round trip is the serialisation of two small
    frames, and a few tens of microseconds of the machine's own always remain: they count
    by what they add to the RTT that TCP works with (expected plus a full buffer).
    """
    expected = plan.base_rtt_s
    loaded = expected + max(link.buffer_bytes * 8 / link.rate_bps for link in plan.bottlenecks.values())
    off = max(abs(measured[f"rtt_us_{when}"] / 1e6 - expected) / loaded for when in ("before", "after"))
    return _above("I8", "idle RTT off from the expected, ÷ RTT with a full buffer", off, 0.20, 0.50)


def _skipped_calls(iterations: pd.DataFrame, plan: Plan, measured: dict[str, Any]) -> dict[str, Any]:
    """I13: eBPF calls that the kernel skipped and kernel/bpf/guard.h made good, per job and second."""
    name = "skipped eBPF calls made good, per job and second"
    if measured["congestion_control_repairs"] is None:
        return _row("I13", name, None, None, "not applicable", "not eBPF, or one that such calls do no harm")
    span = float(iterations["end_s"].max()) * len(plan.jobs)
    return _above("I13", name, measured["congestion_control_repairs"] / span, 0.2, 2.0)


def _paths(measured: dict[str, Any]) -> dict[str, Any]:
    """I14: which of several equal paths a flow takes follows from the seed."""
    seeded = measured["paths_seeded"]
    note = "" if seeded else "this kernel's hash cannot be seeded (Linux 6.11 can): other paths after the next boot"
    return _row(
        "I14", "paths follow from the seed", int(seeded), {"suspect below": 1}, "ok" if seeded else "suspect", note
    )


def _fixed_volume(iterations: pd.DataFrame, plan: Plan) -> dict[str, Any]:
    """I9: every iteration carried exactly the bytes of the (scaled) trace."""
    wrong = 0
    for job in plan.jobs:
        for rank, expected in enumerate(job.bytes_per_worker):
            rows = iterations[(iterations["job"] == job.job) & (iterations["worker"] == rank)]
            short = job.leave_ns is None and len(rows) != job.iterations
            wrong += int((rows["bytes"] != expected).sum()) + short
    return _above("I9", "iterations with other bytes than the trace's", wrong, 0, 0)


def _lone_job(iterations: pd.DataFrame, plan: Plan) -> dict[str, Any]:
    """I11: a synthetic job alone takes its computed ideal time."""
    name = "a lone job's iteration ÷ ideal"
    if plan.alone is None:
        return _row("I11", name, None, None, "not applicable", "see the run of one job alone")
    ideal_s = plan.jobs[0].ideal_s
    if ideal_s is None:
        return _row("I11", name, None, None, "not applicable", "nobody can compute what a real program takes")
    if plan.jobs[0].noise != "0%":
        return _row("I11", name, None, None, "not applicable", "its computing varies")
    if plan.jobs[0].trace != "synthetic":
        return _row("I11", name, None, None, "not applicable", "a ring's ACKs queue behind its own reverse data")
    if plan.multipath and len({link.rate_bps for link in plan.bottlenecks.values()}) > 1:
        return _row("I11", name, None, None, "not applicable", "a hash chooses its path, and not all are equally fast")
    if shy := _shy(plan):
        return _row("I11", name, None, None, "not applicable", f"{shy[0]} itself leaves the link idle at times")
    if plan.wires:
        return _row(
            "I11", name, None, None, "not applicable", "with delay or loss TCP itself needs longer than the ideal"
        )
    return _above("I11", name, alone(iteration_times(iterations)) / ideal_s, 1.01, 1.05)

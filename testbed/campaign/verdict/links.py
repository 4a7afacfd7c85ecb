"""Invariants of links: their rate, their queues, losses, round trips, paths, events."""

from __future__ import annotations

import numpy as np
import pandas as pd

from testbed.campaign.verdict.invariant import (
    Case,
    Limits,
    Noted,
    Unjudged,
    above,
    not_applicable,
    not_evaluated,
    without,
)
from testbed.core.runs.plan import LinkEvent, Plan
from testbed.core.text import decimal
from testbed.linux.queues.rates import bucket_bytes

BUSY_WINDOW_S = 0.1
EVENT_S = 0.02  # tolerance of an event's instant, against a real clock
QUEUED_S = 0.2  # two samples with a queue within less may belong to different phases
FINE_NS = 10_000_000  # sample interval above which two samples with a queue may belong to different phases as well
SAMPLED_S = 1e-6  # precision of sample times in the tables
# Delay of a sample by each worker that sends datagrams and runs first at that instant: a clock reading takes a nanosecond.
WORKER_S = 1e-7
SOURCE_S = 1e-6  # the same by a source of background traffic, whose flows may begin and end at that instant
ROUNDED_S = 1e-9  # seconds by which TBF may underestimate a packet's time, since it counts in whole ns
AT_RATE = 0.95  # an interval with a queue counts as served if it carried this share of the rate
ALL_DISTURBED = "every sample was disturbed (I21)"
COME_AND_GO = "with rings, delay, loss, or BBR, a queue can empty between two samples"
COARSE = "samples are more than 10 ms apart: a queue can empty between two samples"


def exact_clock(case: Case) -> Unjudged | None:
    """Return None under virtual time, else why the invariant does not apply: shapers and samplers are late on a real
    clock."""
    return None if case.virtual else not_applicable("on a real clock, busy windows are judged")


def short_queues(case: Case) -> Unjudged | None:
    """Return None if queues can be empty between samples: then only an excess over the rate can be detected."""
    if case.virtual:
        return not_applicable("under virtual time, every interval is judged")
    return None if _why_queues_go(case) else not_applicable("a standing queue shows both deviations")


def queue_stays(case: Case) -> Unjudged | None:
    """The condition that a queue seen in two samples also existed between them."""
    reason = _why_queues_go(case)
    return not_evaluated(reason) if reason else None


def one_queue(case: Case) -> Unjudged | None:
    """The condition of `queue_stays`, and that no flow crosses two consecutive bottlenecks."""
    if reason := queue_stays(case):
        return reason
    if case.plan.in_a_row > 1:
        return not_evaluated("behind another bottleneck, a queue can empty between two samples")
    return None


def one_busy_queue(case: Case) -> Unjudged | None:
    """The condition of `one_queue`, and that no sender paces itself."""
    if reason := one_queue(case):
        return reason
    if case.plan.transports:
        return not_evaluated("a transport paces its packets: a queue can empty between two samples")
    if any(cc.traits.paced for cc in case.plan.ccs):
        return not_evaluated("DCQCN paces its packets: a queue can empty between two samples")
    return None


def _why_queues_go(case: Case) -> str:
    """Return why a sampled queue may be empty before the next sample; an empty string if it cannot.

    Full-duplex rings pause by themselves. After a random loss, or if the window must also fill a long path, the queue
    is empty for a while. Some congestion controls keep it short intentionally.
    """
    plan = case.plan
    if plan.sample_ns > FINE_NS:
        return COARSE
    if (
        may_leave_idle(plan)
        or plan.wires
        or plan.background
        or any(op.algorithm != "send_recv" for job in plan.jobs for op in job.collectives)
        or any(job.program is not None or job.leave_ns is not None for job in plan.jobs)
    ):
        return COME_AND_GO
    return ""


def may_leave_idle(plan: Plan) -> list[str]:
    """The congestion controls of its jobs that leave a link idle at times: they go by delay, or by a rate they measure."""
    return [*(cc.name for cc in plan.ccs if cc.traits.may_leave_idle), *plan.transports]


def excess(case: Case) -> float:
    """I3, exactly: by how many bytes a link has at most carried more than rate × time + bucket in any interval."""
    most = 0.0
    late_s = SAMPLED_S + WORKER_S * sum(len(job.hosts) for job in case.plan.jobs if not job.by_tcp)
    late_s += SOURCE_S * len(case.plan.background)
    for name, rows in case.links.groupby("link"):
        link = case.plan.bottlenecks[str(name)]
        t, sent, packets = (rows[column].to_numpy() for column in ("t_s", "bytes", "packets"))
        rate_bps, events = _fastest(case.plan, str(name), t)
        due = np.append(0.0, np.cumsum(rate_bps[1:] / 8 * (np.diff(t) + ROUNDED_S * np.diff(packets))))
        ahead = sent - due
        # A change of the rate fills the bucket anew.
        bucket = (1 + events) * bucket_bytes(link.rate_bps, link.mtu, real_time=False)
        allowed = bucket + rate_bps.max() / 8 * late_s
        most = max(most, float((ahead - np.minimum.accumulate(ahead)).max()) - allowed)
    return float(most)


def _events(plan: Plan, link: str, t_s: np.ndarray) -> list[LinkEvent]:
    """What happens to ``link`` until the last of these times, the rates of its trace included."""
    events = [event for event in plan.events if event.link == link]
    if (trace := plan.bottlenecks[link].trace) is not None and len(t_s):
        steps = range(int(float(t_s[-1]) * 1e9 // trace.every_ns) + 1)
        events += [LinkEvent(step * trace.every_ns, link, trace.at(step), None) for step in steps]
    return sorted(events, key=lambda event: event.at_ns)


def _fastest(plan: Plan, link: str, t_s: np.ndarray) -> tuple[np.ndarray, int]:
    """The highest rate of ``link`` in bit/s between each of these times and the one before; how many events there are."""
    rate_bps = np.full(len(t_s), float(plan.bottlenecks[link].rate_bps))
    events = _events(plan, link, t_s)
    now = before = float(plan.bottlenecks[link].rate_bps)
    for event in events:
        before, now = now, now if event.rate_bps is None else float(event.rate_bps)
        at_s = event.at_ns / 1e9
        rate_bps[t_s >= at_s] = max(before, now)  # the interval in which it changes
        rate_bps[np.append(False, t_s[:-1] >= at_s + EVENT_S)] = now
    return rate_bps, len(events)


def faster(case: Case) -> float | Noted | Unjudged:
    """I3: by how much more than its rate a link has carried in 100 ms; the 99th percentile, for a sample that is
    late by some ms shows too much in the windows around it."""
    off, disturbed = _off(case, busy=False)
    if not len(off):
        return not_evaluated(ALL_DISTURBED if disturbed.any() else "the run was too short")
    return without(float(max(0.0, np.percentile(off, 99))), disturbed)


def typically_off(case: Case) -> float | Noted | Unjudged:
    """I3: how far a busy link is off its rate; the median detects a wrong rate."""
    off, disturbed = _off(case, busy=True)
    if not len(off):
        return not_evaluated(ALL_DISTURBED if disturbed.any() else "no queue lasted for 100 ms")
    return without(float(np.median(abs(off))), disturbed)


def at_worst_off(case: Case) -> float | Noted | Unjudged:
    """I3: the worst window detects a link that stood still.

    I4 judges how often that happens. A hiccup of 2 ms changes ten overlapping windows by 2 %, but no result.
    """
    off, disturbed = _off(case, busy=True)
    if not len(off):
        return not_evaluated(ALL_DISTURBED if disturbed.any() else "no queue lasted for 100 ms")
    return without(float(abs(off).max()), disturbed)


def worst_limits(case: Case) -> Limits:
    """Limits of I3's worst window. On a real clock, one bad window does not invalidate a run; the median and I4 do."""
    return above(0.10, 0.30 if case.virtual else None)


def _off(case: Case, *, busy: bool) -> tuple[np.ndarray, np.ndarray]:
    """Return the relative deviations of the shaper's bytes from its rate, for every 100 ms, and which intervals were
    disturbed.

    With ``busy``, only for intervals with a queue throughout. Disturbed intervals have no deviation.
    """
    ratios: list[float] = []
    disturbed: list[bool] = []
    for name, rows in case.links.groupby("link"):
        t, sent, backlog = (rows[column].to_numpy() for column in ("t_s", "bytes", "backlog_bytes"))
        rate_bps, past = _rate(case.plan, str(name), t)
        until = np.searchsorted(t, t + BUSY_WINDOW_S)
        start = np.flatnonzero(until < len(t))
        start = start[(past[until[start]] == past[start]) & (rate_bps[start] > 0)]
        if busy:
            idle = np.cumsum((backlog == 0) | np.append(True, ~_within_a_phase(case.iterations, t)))
            start = start[(idle[until[start]] == idle[start]) & (backlog[start] > 0)]
        calm = case.calm.holds(t[start], t[until[start]])
        disturbed += list(~calm)
        start = start[calm]
        span = t[until[start]] - t[start]
        ratios += list((sent[until[start]] - sent[start]) * 8 / (span * rate_bps[start]))
    return np.array(ratios) - 1, np.array(disturbed)


def work_conservation(case: Case) -> float | Noted | Unjudged:
    """I4: share of the time with a queue in which the bottleneck sends at its rate."""
    served = queued = 0.0
    disturbed: list[bool] = []
    for link, rows in case.links.groupby("link"):
        t, sent, backlog = (rows[column].to_numpy() for column in ("t_s", "bytes", "backlog_bytes"))
        rate_bps, past = _rate(case.plan, str(link), t)
        busy = (
            _within_a_phase(case.iterations, t)
            & (backlog[:-1] > 0)
            & (backlog[1:] > 0)
            & (past[:-1] == past[1:])
            & (rate_bps[:-1] > 0)
        )
        calm = case.calm.holds(t[:-1], t[1:])
        disturbed += list(~calm[busy])
        busy &= calm
        span = np.diff(t)[busy]
        whole = (
            np.diff(sent)[busy] + case.plan.link.mtu
        )  # a sample may fall into a packet, which counts when it has left
        queued += span.sum()
        served += span[whole * 8 >= AT_RATE * rate_bps[:-1][busy] * span].sum()
    if queued < QUEUED_S:
        return not_evaluated(
            f"a queue existed for {decimal(queued, 2)} s only" + (", undisturbed" if any(disturbed) else "")
        )
    return without(float(served / queued), np.array(disturbed))


def _within_a_phase(iterations: pd.DataFrame, t_s: np.ndarray) -> np.ndarray:
    """Whether a sender is active during the complete interval between two of these times.

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
    for event in _events(plan, link, t_s):
        at_s = event.at_ns / 1e9
        after = t_s >= at_s
        past += after
        working[after & (t_s < at_s + EVENT_S)] = False
        if event.rate_bps is not None:
            rate_bps[after] = event.rate_bps
        if event.up is not None:
            working[t_s >= at_s + EVENT_S] = event.up
    return rate_bps * working, past


def no_link_fails(case: Case) -> Unjudged | None:
    """The condition that no link fails during the run."""
    failing = any(event.up is False for event in case.plan.events)
    return not_evaluated("a link fails and loses its packets") if failing else None


def lost(case: Case) -> float:
    """I5: packets lost anywhere but in a bottleneck's queue, ÷ packets."""
    counters = case.measured.counters
    gone = counters.interface_dropped + counters.interface_errors + counters.softnet_dropped
    return float(gone / max(1, counters.packets))


def base_rtt(case: Case) -> float:
    """I8: difference between the idle and the expected round trip ÷ the round trip under load; the larger of before
    and after.

    Without emulated delay, the expected round trip is the serialisation of two small frames. The machine always adds a
    few tens of microseconds. They are compared with the RTT that TCP sees: the expected one plus a full buffer.
    """
    expected = case.plan.base_rtt_s
    loaded = expected + max(link.buffer_bytes * 8 / link.rate_bps for link in case.plan.bottlenecks.values())
    idle_us = case.measured.rtt_us_before, case.measured.rtt_us_after
    return float(max(abs(rtt_us / 1e6 - expected) / loaded for rtt_us in idle_us))


def equal_paths(case: Case) -> Unjudged | None:
    """I14 applies only where several paths are equally short."""
    return None if case.plan.multipath else not_applicable("no pair of hosts has several equal paths")


def seeded(case: Case) -> float | Noted:
    """I14: which of several equal paths a flow takes follows from the seed."""
    if case.measured.paths_seeded:
        return 1
    return Noted(0, "this kernel cannot seed its path hash (Linux 6.11 can): paths change with the next boot")


def changes(case: Case) -> Unjudged | None:
    """I15 applies only to plans with link events."""
    return None if case.plan.events else not_applicable("the plan has no link events")


def missed(case: Case) -> float | Noted:
    """I15: link events of the plan that did not take place."""
    left = case.measured.sampler.events_missed
    return Noted(len(left), "the run ended before: " + ", ".join(left)) if left else 0


def edges(case: Case) -> float | Unjudged:
    """I20: rate of hosts ÷ rate of the slowest bottleneck.

    With a much faster edge, a phase begins with its complete window at once.
    """
    hosts = {host for job in case.plan.jobs for host in job.hosts}
    shaped = {name.partition("-")[0]: link.rate_bps for name, link in case.plan.bottlenecks.items()}
    if case.plan.sender.nic_bps is not None:
        shaped |= {name.partition("-")[0]: case.plan.sender.nic_bps for name in case.plan.nics}
    if not hosts <= shaped.keys():
        return Unjudged("ok", "host links are not shaped: as fast as the kernel, or infinitely fast under virtual time")
    return min(shaped[host] for host in hosts) / min(link.rate_bps for link in case.plan.bottlenecks.values())

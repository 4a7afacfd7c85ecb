"""Checks of a transport over UDP: whether its hosts dropped datagrams, and how many left together."""

from __future__ import annotations

from testbed import transports
from testbed.campaign.verdict.invariant import Case, Limits, Noted, Unjudged, above, not_applicable, not_evaluated
from testbed.campaign.verdict.tcp import OLDER

TIMER_PACKETS = 3  # packets per timer interval of the core; with the one that is then due, four leave together
GAINS = 1.25 / 0.347  # largest increase factor of its rate: from draining a queue to probing


def dropped(case: Case) -> float | Noted | Unjudged:
    """I24: datagrams of a transport over UDP that never reached a link, or never left one.

    Their host refused them, or its sockets were full.
    """
    counters = case.measured.datagrams
    if counters is None:
        return not_evaluated(OLDER)
    lost = {one.job: 0 for one in counters}
    for one in counters:
        lost[one.job] += one.not_sent + one.overflowed
    worst = max(lost, key=lambda job: lost[job])
    return Noted(float(sum(lost.values())), f"most of job {worst}: {lost[worst]}") if lost[worst] else 0.0


def sent(case: Case) -> Unjudged | None:
    """Return None if a job sends datagrams, else the reason why the invariant does not apply."""
    own = any(not job.by_tcp for job in case.plan.jobs)
    return None if own else not_applicable("the kernel forms all packets")


def burst(case: Case) -> float | Unjudged:
    """I24: most packets that left to a peer at one instant. Four are paced together, more where the rate rises while their timer runs."""
    counters = case.measured.datagrams
    return not_evaluated(OLDER) if counters is None else float(max(one.burst for one in counters))


def burst_limits(case: Case) -> Limits:
    """Return the limits of I24's bursts: a timer interval at the rate after all gains, plus a link's data in a pause
    of `coalesce`.

    The ACKs of that pause arrive together. On a real clock there is no limit, because late timers are compensated.
    """
    if not case.virtual:
        return Limits()
    plan = case.plan
    own = [transports.parse(job.transport) for job in plan.jobs if not job.by_tcp and not job.program]
    rest_s = max((one.options.core.coalesce for one in own), default=0) / 1e9
    rates = [link.rate_bps for link in plan.bottlenecks.values()] + [event.rate_bps or 0 for event in plan.events]
    return above(round(1 + TIMER_PACKETS * GAINS + max(rates) * rest_s / 8 / plan.link.mtu, 1))

"""What is known of a transport that sends datagrams of its own: whether its own hosts dropped any, and how many left together."""

from __future__ import annotations

from testbed.campaign.verdict.invariant import Case, Noted, Unjudged, not_applicable, not_evaluated
from testbed.campaign.verdict.tcp import OLDER


def dropped(case: Case) -> float | Noted | Unjudged:
    """I24: datagrams of a transport of its own that never were on a link, or never came out of one: its host refused them, or its sockets were full."""
    told = case.measured.datagrams
    if told is None:
        return not_evaluated(OLDER)
    lost = {one.job: 0 for one in told}
    for one in told:
        lost[one.job] += one.not_sent + one.overflowed
    worst = max(lost, key=lambda job: lost[job])
    return Noted(float(sum(lost.values())), f"most of job {worst}: {lost[worst]}") if lost[worst] else 0.0


def sent(case: Case) -> Unjudged | None:
    """None: at least one job does."""
    own = any(not job.by_tcp and not job.program for job in case.plan.jobs)
    return None if own else not_applicable("the kernel makes what is sent")


def burst(case: Case) -> float | Unjudged:
    """I24: most packets that left to a peer at one instant. Four are paced together; more make up for a timer that was late, or for a rest (`coalesce`)."""
    told = case.measured.datagrams
    return not_evaluated(OLDER) if told is None else float(max(one.burst for one in told))

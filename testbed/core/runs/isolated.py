"""The isolated run that gives a job's time in isolation: of its system, or of another where the system cannot matter."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

from testbed.core import builtin_transport, system_text
from testbed.core.runs.plan import CongestionControl, JobPlan, Link, Plan

# Parameters of MLTCP that change its share of a link next to other flows, but nothing on a link without other flows.
HARMLESS = ("preset", "slope", "intercept", "curve")
KIND = ("operations", "ideal_s", "noise", "channels")
KIND_ANYWHERE = (*KIND, "window", "partition", "program", "trains", "life")

Found = TypeVar("Found")


def system_matters(plan: Plan, job: JobPlan) -> bool:
    """Return True if the isolated iteration time of ``job`` can depend on its system.

    It cannot with plain TCP that always has data to send: no delay, loss, or drop, and an ECN threshold above the bytes in
    flight. Custom, delay-based, and rate-based congestion controls, and unusual parameters, count as different.
    """
    return (
        job.program is not None
        or job.trains is not None
        or not builtin_transport.plain(job.transport)
        or bool(job.exclusive)
        or (bool(job.bands) and job.window is not None)
        or bool(plan.wires)
        or _stands_apart(job.cc)
        or any(_holds_back(plan, link) for link in plan.bottlenecks.values())
    )


def _stands_apart(control: CongestionControl) -> bool:
    if control.source is not None or control.traits.may_leave_idle or control.traits.paced:
        return True
    given = dict(system_text.part(control.spec).options)
    return bool(set(given) - set(HARMLESS)) or any(
        given.get(name, "").startswith("-") for name in ("slope", "intercept")
    )


def _holds_back(plan: Plan, link: Link) -> bool:
    """Return True if a link drops packets, or marks so early that a single flow may not fill it."""
    if link.ecn_threshold is None or link.selective:
        return True
    # Bytes in flight without queueing: one idle round trip plus one frame per hop.
    in_flight_bytes = link.rate_bps / 8 * plan.base_rtt_s + (plan.in_a_row + 1) * link.mtu
    return link.ecn_threshold.min_bytes < in_flight_bytes


def is_its_own(plan: Plan) -> bool:
    """Return True if a run of one job is that job in isolation: without link events, and without start slots."""
    return len(plan.jobs) == 1 and not plan.events and plan.jobs[0].grid is None


def serves(lone: Plan, plan: Plan, job: JobPlan) -> bool:
    """Return True if the isolated run ``lone`` is valid for ``job`` of ``plan``."""
    own = lone.jobs[0]
    if lone.link != plan.link or any(getattr(own, name) != getattr(job, name) for name in KIND):
        return False
    if lone.system.label == plan.system.label and lone.alone == job.like:
        return True
    if len(own.hosts) != len(job.hosts) or any(_plain(own, name) != _plain(job, name) for name in KIND_ANYWHERE):
        return False
    same = all(getattr(own, name) == getattr(job, name) for name in ("cc", "transport", "bands", "falls", "exclusive"))
    return same or not (system_matters(lone, own) or system_matters(plan, job))


def _plain(job: JobPlan, name: str) -> object:
    value = getattr(job, name)
    return value.gpus if name == "life" and value is not None else value


def find(plan: Plan, job: JobPlan, lone: Iterable[Found], plan_of: Callable[[Found], Plan]) -> Found | None:
    """Find the isolated run for ``job``: preferably of its system and seed, otherwise of the lowest seed; None if none is suitable."""

    def order(run: Found) -> tuple[bool, bool, bool, int]:
        own = plan_of(run)
        return own.system.label != plan.system.label, own.alone != job.like, own.seed != plan.seed, own.seed

    return min((run for run in lone if serves(plan_of(run), plan, job)), key=order, default=None)

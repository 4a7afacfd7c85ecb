"""The range in which the flow simulator was compared with virtual time (benchmarks/flow_validation.py;
docs/explanation/flow-simulator.md).

The gain is the iteration time under Reno ÷ that under MLTCP-Reno, mean over jobs. `BOUNDS` is the range; `check` lists
the properties of a plan outside it, with the reason why that matters. The errors of the gain are in
`testbed.models.flow_error`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby
from operator import attrgetter
from typing import NamedTuple

from mininet.topo import Topo

from testbed import networks
from testbed.congestion import catalogue
from testbed.core.runs.plan import CongestionControl, JobPlan, Plan
from testbed.models import flow_weights
from testbed.models.bounds import Stage, crossed
from testbed.models.frames import frame, payload_share
from testbed.replay import flows
from testbed.traces.noise import Noise
from testbed.transports import Flow

TOPOLOGIES = ("dumbbell", "leafspine")
MOST_WORKERS = 2
WIDE = "rings of more than two workers were not compared"


class Reason(NamedTuple):
    """The reason why a plan is outside the range."""

    bound: str  # its name
    text: str  # in words, without full stop


@dataclass(frozen=True)
class Bound:
    """A compared quantity: values from ``low`` to ``high``."""

    name: str
    low: float
    high: float
    text: str  # description of a value outside, with the fields "value", "low" and "high"

    def reason(self, value: float) -> Reason | None:
        if self.low <= value <= self.high:
            return None
        return Reason(self.name, self.text.format(value=value, low=self.low, high=self.high))


BOUNDS = (
    Bound("jobs", 1, 32, "{value:.3g} jobs (compared: at most {high})"),
    Bound("workers", 1, MOST_WORKERS, "{value:.3g} workers of a job (compared: at most {high})"),
    Bound("flows_per_job", 1, 4, "{value:.3g} connections of a flow (compared: at most {high})"),
    Bound(
        "frames_per_flow", 5, 20,
        "{value:.3g} frames of marking threshold for each flow (compared: {low} to {high}); below 3 frames every window is at its minimum, and MLTCP cannot act",
    ),
    Bound(
        "cycles_per_phase", 19, 10_000,
        "a communication phase of {value:.3g} loss cycles (compared: {low} or more); in few cycles MLTCP cannot act",
    ),
    Bound(
        "flows_per_path", 6, 1000,
        "{value:.3g} flows for each of equal paths (compared: {low} or more); which of few flows meet on a path is chance",
    ),
    Bound("offered_load", 0, 1.15, "jobs that need {value:.0%} of a link's rate (compared: at most {high:.0%})"),
    Bound("noise", 0, 0.03, "noise of computing of {value:.1%} (compared: at most {high:.0%})"),
)  # fmt: skip


def check(plan: Plan) -> tuple[Reason, ...]:
    """The properties of ``plan`` outside the range; empty: none. A job in isolation shares no link."""
    if plan.alone is not None:
        return ()
    found = [Reason("setting", text) for job in plan.jobs if (text := uncompared(job.cc) or _setting(plan, job))]
    values = measures(plan)
    found += [reason for each in BOUNDS if each.name in values and (reason := each.reason(values[each.name]))]
    return tuple(dict.fromkeys(found))


def measures(plan: Plan) -> dict[str, float]:
    """The quantities that `BOUNDS` bound, by name; absent ones of a plan are left out."""
    found = {
        "jobs": float(len(plan.jobs)),
        "workers": float(max(len(job.hosts) for job in plan.jobs)),
        "flows_per_job": float(max(job.channels for job in plan.jobs)),
        "noise": max(Noise(job.noise).amount for job in plan.jobs),
    }
    links = shared_links(plan)
    if links:
        found["offered_load"] = max(link.load for link in links)
    if any(link.paths > 1 for link in links):
        found["flows_per_path"] = min(link.flows for link in links if link.paths > 1)
    marking = [link for link in links if link.frames is not None]
    if marking:
        found["frames_per_flow"] = min(link.frames / link.flows for link in marking if link.frames is not None)
        found["cycles_per_phase"] = min(link.cycles for link in marking)
    return found


class SharedLink(NamedTuple):
    """A bottleneck that flows of several jobs cross; of equal paths, what each carries in the mean."""

    name: str
    flows: float  # largest number of concurrent flows
    paths: int  # equal ones, of which it is one
    load: float  # fraction of its rate if every job were as fast as in isolation
    frames: float | None  # ECN threshold in frames; None: no marking
    cycles: float  # loss cycles in the shortest phase in which all flows send; infinity: it does not mark


def shared_links(plan: Plan) -> list[SharedLink]:
    """Return every bottleneck that several jobs share."""
    topo = networks.made(plan.topology, plan.topology_args, plan.nics_per_server)
    return list(_shared(plan, [_on_links(topo, plan, job) for job in plan.jobs]))


class OnLink(NamedTuple):
    """The demand of a job on a link in an iteration."""

    flows: float
    paths: int
    payload: float  # bytes


def _shared(plan: Plan, own: list[dict[str, OnLink]]) -> Iterator[SharedLink]:
    for name, link in plan.bottlenecks.items():
        there = [(job, on[name]) for job, on in zip(plan.jobs, own, strict=True) if name in on]
        if len(there) < 2:
            continue
        bits = {job.job: on.payload * 8 / payload_share(link.mtu) for job, on in there}
        load = sum(bits[job.job] / link.rate_bps / job.ideal_s for job, _ in there if job.ideal_s)
        count, paths = sum(on.flows for _, on in there), max(on.paths for _, on in there)
        if link.ecn_threshold is None:
            yield SharedLink(name, count, paths, load, None, float("inf"))
            continue
        frames = link.ecn_threshold.min_bytes / frame(link.mtu)
        cycle_s = max(1.0, frames / count / 2) * link.ecn_threshold.min_bytes * 8 / link.rate_bps
        shortest = min(bits[job.job] / on.flows for job, on in there) * count / link.rate_bps
        yield SharedLink(name, count, paths, load, frames, shortest / cycle_s)


def _on_links(topo: Topo, plan: Plan, job: JobPlan) -> dict[str, OnLink]:
    """By link. Collectives of a group follow each other, groups go on at once."""
    stages_by_flow: dict[Flow, list[Stage]] = {}
    payload, most, paths = Counter[str](), Counter[str](), dict[str, int]()

    def spread(flow: Flow, amount: float, into: Counter[str]) -> None:
        if flow not in stages_by_flow:
            stages_by_flow[flow] = crossed(topo, plan.bottlenecks, job.hosts[flow[0]], job.hosts[flow[1]])
        for stage in stages_by_flow[flow]:
            for link in stage:
                into[link] += amount / len(stage)  # type: ignore[assignment]
                paths[link] = max(len(stage), paths.get(link, 1))

    of_group = attrgetter("group")
    for _, group in groupby(sorted(job.exchanges, key=of_group), key=of_group):
        most_of_group = Counter[str]()
        for op in group:
            at_once = Counter[str]()
            for flow in flows.flows(op, len(job.hosts)):
                spread(flow, job.channels, at_once)
            most_of_group |= at_once
            for flow, size in flows.payload(op, len(job.hosts), op.bytes or 0).items():
                spread(flow, size, payload)
        most.update(most_of_group)
    return {link: OnLink(most[link], paths[link], payload[link]) for link in payload if payload[link]}


def _setting(plan: Plan, job: JobPlan) -> str:
    """The properties of a run that no compared run had; empty: none."""
    constants = catalogue.effective(job.cc)
    unlike = {
        "several process groups, since the kernel's MLTCP may take their exchanges for iterations of their own": job.groups,
        f"topology {plan.topology}": plan.topology not in TOPOLOGIES,
        "priority queues": plan.link.bands > 1 or job.bands,
        "start times set by a scheduler": job.grid is not None,
        "a constant F": job.cc.traits.learns and not constants["slope"],
        "an MLTCP without the window that `recommended` restarts with": job.cc.traits.learns and not constants.get("restart"),
        "unshaped NICs": not plan.nics,
        "links that do not mark": plan.link.ecn_threshold is None,
        "links that change": plan.events,
    }  # fmt: skip
    return next((f"not compared with emulation: {what}" for what, found in unlike.items() if found), "")


def uncompared(control: CongestionControl) -> str:
    """Return why no comparison covers ``control``; empty if one does."""
    sharing = flow_weights.BASES.get(flow_weights.base(control))
    compared = sharing is not None and (sharing.compared_mltcp if control.traits.learns else sharing.compared)
    return "" if compared else f"{control.name} was not compared"

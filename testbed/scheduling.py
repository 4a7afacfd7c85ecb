"""What may be named under ``--cc``: congestion controls, in turn, or a scheduler that decides for all jobs.

::

    --cc reno mltcp_reno reno+cubic cassini cassini:over=cubic unfair:weights=3/1 priority
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import schedulers
from schedulers import Phase, Policy, ScheduleError
from testbed import congestion
from testbed.congestion import CongestionControl
from testbed.errors import RequestError
from workloads import trace as traces
from workloads.collectives import Flow
from workloads.text import quoted
from workloads.trace import Operation, Trace


@dataclass(frozen=True)
class Profile:
    """What iterations took that a job ran alone: mean and standard deviation in s."""

    iteration_s: float
    spread_s: float


@dataclass(frozen=True)
class Contender:
    """One word of ``--cc``; ``cc`` is what its runs are called."""

    cc: CongestionControl
    turns: tuple[CongestionControl, ...]  # the jobs take turns; empty: `policy` says
    policy: Policy | None = None

    def take_turns(self, jobs: int) -> schedulers.Schedule:
        """Congestion controls in turn, and nothing else, for so many jobs."""
        ccs = [self.turns[number % len(self.turns)].spec for number in range(jobs)]
        return schedulers.Schedule(tuple(schedulers.Decision(cc) for cc in ccs))

    def decide(self, jobs: Sequence[schedulers.Job], links: Mapping[str, float]) -> schedulers.Schedule:
        """What the policy tells each job; raises `RequestError`."""
        assert self.policy is not None
        try:
            decided = self.policy.schedule(jobs, links)
            for cc in {decision.cc for decision in decided.decisions}:
                congestion.parse(cc)
            return decided
        except (ScheduleError, RequestError) as error:
            raise RequestError(f"cc: {self.cc.spec}: {error}") from error


def parse(spec: str) -> Contender:
    """Read one word of ``--cc``; raises `RequestError`."""
    parts = [part.partition(":")[0] for part in spec.split("+")]
    named = [part for part in parts if part in schedulers.names()]
    if not named:
        turns = congestion.parse_all(spec)
        return Contender(congestion.together(turns), turns)
    if len(parts) > 1:
        raise RequestError(
            f"{quoted(spec)}: {named[0]} is a scheduler and decides for all jobs; they cannot take turns with it."
        )
    try:
        policy = schedulers.parse(spec)
    except ScheduleError as error:
        raise RequestError(str(error)) from error
    return Contender(CongestionControl(spec, policy.name, {}), (), policy)


def profile(
    trace: Trace,
    rounds: Callable[[Operation], list[dict[Flow, int]]],
    bits: Callable[[dict[Flow, int]], Mapping[str, float]],
    links: Mapping[str, float],
    most_bytes: int,
    measured: Profile | None,
) -> schedulers.Job:
    """A job alone: when it wants how much of each link, each round of a collective as fast as its busiest link allows.

    ``bits``: what a round puts on each link, headers included (`bounds.loads`); ``links``: their capacity in bit/s.
    ``measured``: what its iteration really took; everything is then as much slower.
    """
    loads = {op.id: [bits(one) for one in rounds(op)] for op in trace.operations if op.kind != "compute"}

    def lasts(load: Mapping[str, float]) -> float:
        return max((size / links[link] for link, size in load.items()), default=0.0)

    times = traces.schedule(trace, lambda op: sum(map(lasts, loads[op.id])))
    ideal_s = max(end for _, end in times.values())
    slower = 1.0 if measured is None else measured.iteration_s / ideal_s
    phases: dict[str, list[Phase]] = {}
    for name, in_rounds in loads.items():
        start = times[name][0]
        for load in in_rounds:
            end = start + lasts(load)
            for link, size in load.items():
                if size:
                    phase = Phase(start * slower, end * slower, size / (end - start) / slower)
                    phases.setdefault(link, []).append(phase)
            start = end
    spread_s = 0.0 if measured is None else measured.spread_s
    return schedulers.Job(
        ideal_s * slower, {link: tuple(found) for link, found in phases.items()}, most_bytes, spread_s
    )

"""What may be named under ``--cc``: congestion controls, in turn, or a scheduler that decides for all jobs.

::

    --cc reno mltcp_reno reno+cubic cassini cassini:over=cubic unfair:weights=3/1 priority
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import flow_schedulers
from congestion import catalogue
from core.errors import RequestError
from core.runs.plan import CongestionControl
from core.text import quoted
from flow_schedulers import FlowScheduler, ScheduleError


@dataclass(frozen=True)
class Contender:
    """One word of ``--cc``; ``cc`` is what its runs are called."""

    cc: CongestionControl
    turns: tuple[CongestionControl, ...]  # the jobs take turns; empty: `policy` says
    policy: FlowScheduler | None = None

    def take_turns(self, jobs: int) -> flow_schedulers.Sharing:
        """Congestion controls in turn, and nothing else, for so many jobs."""
        ccs = [self.turns[number % len(self.turns)].spec for number in range(jobs)]
        return flow_schedulers.Sharing(tuple(flow_schedulers.Rule(cc) for cc in ccs))

    def decide(self, jobs: Sequence[flow_schedulers.Demand], links: Mapping[str, float]) -> flow_schedulers.Sharing:
        """What the policy tells each job; raises `RequestError`."""
        assert self.policy is not None
        try:
            decided = self.policy.share(jobs, links)
            for cc in {rule.cc for rule in decided.rules}:
                catalogue.parse(cc)
            return decided
        except (ScheduleError, RequestError) as error:
            raise RequestError(f"cc: {self.cc.spec}: {error}") from error


def parse(spec: str) -> Contender:
    """Read one word of ``--cc``; raises `RequestError`."""
    parts = [part.partition(":")[0] for part in spec.split("+")]
    named = [part for part in parts if part in flow_schedulers.names()]
    if not named:
        turns = catalogue.parse_all(spec)
        return Contender(catalogue.together(turns), turns)
    if len(parts) > 1:
        raise RequestError(
            f"{quoted(spec)}: {named[0]} is a scheduler and decides for all jobs; they cannot take turns with it."
        )
    try:
        policy = flow_schedulers.parse(spec)
    except ScheduleError as error:
        raise RequestError(str(error)) from error
    return Contender(CongestionControl(spec, policy.name, {}), (), policy)

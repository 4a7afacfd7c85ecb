"""What a flow scheduler is told of a job: when it wants how much of each link."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import flow_schedulers
from core.phase import Phase
from transports import Flow
from workloads import trace as traces
from workloads.trace import Operation, Trace


@dataclass(frozen=True)
class Profile:
    """What iterations took that a job ran alone: mean and standard deviation in s."""

    iteration_s: float
    spread_s: float


def profile(
    trace: Trace,
    rounds: Callable[[Operation], list[dict[Flow, int]]],
    bits: Callable[[dict[Flow, int]], Mapping[str, float]],
    links: Mapping[str, float],
    most_bytes: int,
    measured: Profile | None,
) -> flow_schedulers.Demand:
    """A job alone: when it wants how much of each link, each round of a collective as fast as its busiest link allows.

    ``bits``: what a round puts on each link, headers included (`bounds.loads`); ``links``: their capacity in bit/s.
    ``measured``: what its iteration really took; everything is then as much slower.
    """
    loads = {op.id: [bits(one) for one in rounds(op)] for op in trace.operations if op.kind != "compute"}

    def lasts(load: Mapping[str, float]) -> float:
        return max((size / links[link] for link, size in load.items()), default=0.0)

    times = traces.spans(trace, lambda op: sum(map(lasts, loads[op.id])))
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
    return flow_schedulers.Demand(
        ideal_s * slower, {link: tuple(found) for link, found in phases.items()}, most_bytes, spread_s
    )

"""A job's profile for a flow scheduler: when the job needs how much of each link."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from testbed.core.phase import Phase
from testbed.schedulers import flow
from testbed.traces.matching import Exchange
from testbed.traces.trace import Operation
from testbed.transports import Flow

Exchanging = Operation | Exchange
ROUNDED = 1e-9  # relative difference between two computations of the same time


@dataclass(frozen=True)
class Profile:
    """The iteration time of a job in isolation: mean and standard deviation in s."""

    iteration_s: float
    spread_s: float


def profile(
    exchanges: Sequence[Exchanging],
    timeline: Callable[[Callable[[Exchanging], float]], tuple[float, list[float]]],
    rounds: Callable[[Exchanging], list[dict[Flow, int]]],
    bits: Callable[[dict[Flow, int]], Mapping[str, float]],
    links: Mapping[str, float],
    most_bytes: int,
    measured: Profile | None,
    by_nics_s: Callable[[dict[Flow, int]], float] = lambda _payload: 0.0,
) -> flow.Demand:
    """Return the demand of an isolated job: the rate it needs of each link over time, every round limited by its
    busiest link.

    ``timeline``: given the duration of each exchange, the iteration time and the start of each exchange, in seconds.
    ``bits``: bits that a round puts on each link, headers included (`bounds.loads`). ``links``: capacity in bit/s.
    ``by_nics_s``: duration of a round by the NICs of hosts, in seconds, which no other job shares.
    ``measured``: the measured iteration; all times are stretched to it.
    """
    loads = {id(op): [(bits(one), by_nics_s(one)) for one in rounds(op)] for op in exchanges}

    def lasts(load: Mapping[str, float], nics_s: float) -> float:
        by_links_s = max((size / links[link] for link, size in load.items()), default=0.0)
        return nics_s if nics_s > by_links_s * (1 + ROUNDED) else by_links_s

    ideal_s, starts = timeline(lambda op: sum(lasts(*one) for one in loads[id(op)]))
    slower = 1.0 if measured is None else measured.iteration_s / ideal_s
    phases: dict[str, list[Phase]] = {}
    for start, in_rounds in zip(starts, loads.values(), strict=True):
        for load, nics_s in in_rounds:
            end = start + lasts(load, nics_s)
            for link, size in load.items():
                if size:
                    phase = Phase(start * slower, end * slower, size / (end - start) / slower)
                    phases.setdefault(link, []).append(phase)
            start = end
    spread_s = 0.0 if measured is None else measured.spread_s
    return flow.Demand(ideal_s * slower, {link: tuple(found) for link, found in phases.items()}, most_bytes, spread_s)

"""A trace's demand on a cluster in the terms of equation 8: how long an iteration computes, and the size of its all-reduce.

The computing is the longest chain of computes, exchanges taking no time. The tensor is the one whose ring all-reduce puts as many bytes on
an uplink as the trace's exchanges put on that of its busiest server. Ranks of a group that stays inside a server share an uplink, and what
they exchange among themselves crosses none (`testbed.planning.groups.servers`).
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass

from testbed.core.errors import RequestError
from testbed.core.text import quoted
from testbed.planning.groups import Grouped
from testbed.traces import matching
from testbed.traces import trace as traces
from testbed.traces.trace import ALGORITHMS, Operation, Trace
from testbed.traces.wire_bytes import usual_bytes

MOST_BY_ROUNDS = 512  # GPUs of a collective with a non-default algorithm: its bytes are counted round by round


@dataclass(frozen=True)
class Demand:
    """The demand of a job that replays a trace."""

    gpus: int
    gradient_bytes: int
    compute_s: float


def demand(trace: Trace, gpus: int | None = None) -> Demand:
    """The demand of a trace with compute durations, on so many GPUs (None: its ranks); raises `RequestError` if it has none."""
    wanted = gpus or trace.ranks
    if wanted is None:
        raise RequestError(f"trace {quoted(trace.name)} has no number of ranks. Give `gpus` of the job")
    if trace.alike:
        one = trace.one_list
        busiest = sum(_busiest_rank(op, wanted) for op in one.operations if not op.computes) if wanted > 1 else 0.0
        return Demand(wanted, _all_reduced(busiest, wanted), traces.critical_path_s(one, lambda _op: 0.0))
    if wanted != trace.ranks:
        raise RequestError(
            f"trace {quoted(trace.name)} has {trace.ranks} ranks, each with work of its own, and the job has {wanted} GPUs. Give it {trace.ranks}"
        )
    times = matching.times(trace.matched, [0.0] * len(trace.matched.exchanges))
    return Demand(wanted, _all_reduced(_busiest_server(Grouped(trace, None, 1)), wanted), matching.ends_s(times))


def _busiest_rank(op: Operation, ranks: int) -> float:
    """The most bytes that a rank sends or receives in a collective among so many ranks."""
    if op.algorithm in (None, ALGORITHMS[op.kind]):
        return usual_bytes(op.kind, op.size, ranks)
    if ranks > MOST_BY_ROUNDS:
        raise RequestError(
            f"operation {quoted(op.id)}: {op.algorithm} among {ranks} GPUs is not computed. Give {MOST_BY_ROUNDS} at the most"
        )
    out, came = Counter[int](), Counter[int]()
    for flows in traces.rounds(op, ranks):
        for (source, target), size in flows.items():
            out[source] += size
            came[target] += size
    return max((*out.values(), *came.values()), default=0)


def _busiest_server(grouped: Grouped) -> float:
    """Return the most bytes that a server sends or receives in an iteration.

    Members of an exchange that crosses the network are on different servers.
    """
    out, came = defaultdict[int, float](float), defaultdict[int, float](float)
    for one in grouped.crossing:
        on = {rank: grouped.servers[rank] for rank in one.members}
        if grouped.algorithm(one) == ALGORITHMS.get(one.first.kind):
            usual = usual_bytes(one.first.kind, one.first.size, len(on))
            for server in on.values():
                out[server] += usual
                came[server] += usual
            continue
        for flows in grouped.rounds(one):
            for (source, target), size in flows.items():
                out[on[source]] += size
                came[on[target]] += size
    return max((*out.values(), *came.values()), default=0)


def _all_reduced(busiest: float, gpus: int) -> int:
    """The tensor whose ring all-reduce sends so many bytes over each of its edges."""
    return round(busiest * gpus / (2 * (gpus - 1))) if gpus > 1 else 0

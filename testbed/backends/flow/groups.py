"""The iteration of a job whose ranks differ, or have several groups, as nodes of the flow simulator.

All ranks begin an iteration together. A message waits for its receiver, a collective for all of its members.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from functools import lru_cache
from graphlib import TopologicalSorter

from testbed.core.runs.plan import JobPlan, Operation
from testbed.transports import Flow

Unit = tuple[str, int, str]  # a compute by rank and name, or an exchange by number


@dataclass(frozen=True)
class Part:
    """A compute of one rank, or an exchange, and the parts that it waits for."""

    operation: Operation
    after: tuple[int, ...]


def parts(job: JobPlan) -> tuple[Part, ...]:
    """An iteration, each part behind those that it waits for."""
    return _parts(job.operations, len(job.hosts))


@lru_cache(maxsize=8)  # takes a second for large jobs, and has the same result for equal jobs and other options
def _parts(every: tuple[Operation, ...], ranks: int) -> tuple[Part, ...]:
    waits: dict[Unit, dict[Unit, None]] = {}
    operations: dict[Unit, Operation] = {}
    of_rank: list[list[Operation]] = [[] for _ in range(ranks)]
    for op in every:
        for rank in op.ranks or ():
            of_rank[rank].append(op)
    for rank, own in enumerate(of_rank):
        units = {op.id: _unit(op, rank) for op in own}
        last: dict[object, Unit] = {}
        for op in sorted(own, key=lambda op: (not op.computes, op.exchange)):  # exchanges of a stream by their number
            unit, stream = units[op.id], _stream(op)
            operations.setdefault(unit, op)
            before = waits.setdefault(unit, {})
            before |= dict.fromkeys(units[name] for name in op.after)
            if stream in last:
                before[last[stream]] = None
            last[stream] = unit
    order = list(TopologicalSorter(waits).static_order())
    places = {unit: place for place, unit in enumerate(order)}
    return tuple(Part(operations[unit], tuple(sorted(places[one] for one in waits[unit]))) for unit in order)


def _unit(op: Operation, rank: int) -> Unit:
    return ("compute", rank, op.id) if op.computes else ("exchange", op.exchange, "")


def _stream(op: Operation) -> object:
    """What follows each other on a rank: computes, collectives of a group, messages from one rank to another."""
    return None if op.computes else (op.group, op.members if op.kind in ("send", "recv") else None)


def channels(job: JobPlan) -> dict[tuple[int, Flow], int]:
    """The first channel of a group's flow: a flow that several groups share continues the numbering."""
    seen: Counter[Flow] = Counter()
    found: dict[tuple[int, Flow], int] = {}
    for number, group in enumerate(job.groups):
        for flow in group.flows:
            found[number, flow] = seen[flow]
            seen[flow] += job.channels
    return found

"""FIFO with EASY backfill: jobs in their order; others may pass the first in line if they do not delay its start.

Its start is foreseen from the ends that are due as things stand. GPUs by first fit.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from testbed.core.options import Boolean, option
from testbed.core.placing import Assignments, Request
from testbed.models.cluster import Start, State, assignments, slotted
from testbed.models.contention import Model
from testbed.schedulers import search
from testbed.schedulers.job import Cluster
from testbed.schedulers.line import Group, Least, Line


@dataclass(frozen=True)
class Options:
    backfill: bool = option(True, "whether later jobs may overtake a waiting one: yes (default) or no", Boolean())


def schedule(
    requests: Sequence[Request], cluster: Cluster, model: Model, options: Options, *, seed: int
) -> Assignments:
    """Return the schedule. Raises `RequestError` if a job does not fit on the cluster."""
    instance = search.Instance(requests, cluster, model)
    ran = instance.run(_Policy(instance, backfill=options.backfill))
    assert ran is not None  # it takes any free GPUs
    return assignments(ran)


class _Policy:
    """The jobs that start at a moment."""

    def __init__(self, instance: search.Instance, *, backfill: bool) -> None:
        self._requests, self._estimates_s, self._backfill = instance.requests, instance.estimates_s, backfill
        arrival = [
            (slotted(request.arrival_s, instance.model.slot_s), number)
            for number, request in enumerate(instance.requests)
        ]
        self._line = Line([number for _, number in sorted(arrival)], instance.requests)
        self._lasts = {size: Least(len(group.numbers)) for size, group in self._line.groups.items()}

    def __call__(self, state: State) -> Iterator[Start]:
        line = self._line
        for number in state.arrived:
            self._lasts[self._requests[number].gpus].set(line.add(number), self._estimates_s[number])
        while len(line) and self._requests[number := line.first()].gpus <= state.room:
            yield self._start(number, state)
        if not self._backfill or not len(line) or not state.room:
            return
        first = line.first()
        due_s, spare = _foreseen(state, self._requests[first].gpus)
        rank: int | None = line.rank(first)
        while rank is not None:
            rank = self._next(rank, state, due_s, spare)
            if rank is not None:
                number = line.order[rank]
                ends_in_time = state.now_s + self._estimates_s[number] <= due_s
                spare -= 0 if ends_in_time else self._requests[number].gpus
                yield self._start(number, state)

    def _start(self, number: int, state: State) -> Start:
        wanted = self._requests[number].gpus
        self._lasts[wanted].set(self._line.remove(number), math.inf)
        return number, np.flatnonzero(state.free)[:wanted]

    def _next(self, after: int, state: State, due_s: float, spare: int) -> int | None:
        """Return the first rank after ``after`` whose job fits and does not delay the first in line; None if there is
        none."""
        found = None
        for size, group in self._line.fitting(state.room):
            rank = group.following(after)
            if rank is not None and size > spare and (found is None or rank < found):
                rank = self._in_time(size, group, rank, state.now_s, due_s)
            if rank is not None and (found is None or rank < found):
                found = rank
        return found

    def _in_time(self, size: int, group: Group, rank: int, now_s: float, due_s: float) -> int | None:
        """The first one of a group from this rank on that ends by then."""
        most_s = (
            due_s - now_s + 2 * math.ulp(due_s)
        )  # a tolerance for rounded sums; candidates are then compared exactly
        position: int | None = group.position(rank)
        while position is not None:
            position = self._lasts[size].first(position, most_s)
            if position is not None:
                if now_s + self._estimates_s[group.numbers[position]] <= due_s:
                    return group.all_ranks[position]
                position += 1
        return None


def _foreseen(state: State, wanted: int) -> tuple[float, int]:
    """When so many GPUs will be free, and how many more then."""
    free = state.room
    for end_s, number in sorted(zip(state.ends_s.values(), state.ends_s, strict=True)):
        free += state.requests[number].gpus
        if free >= wanted:
            return end_s, free - wanted
    raise AssertionError("a job is larger than the cluster")

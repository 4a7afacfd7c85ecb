"""Optimum: the least makespan of all placements and starts, by exhaustive search. For a handful of jobs.

Jobs start at the beginning or when others end, as in every other schedule here; equation 8 is evaluated exactly. GPUs of one
server are interchangeable: only their number counts. Branches that cannot beat the best so far are skipped.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from testbed.core.errors import RequestError
from testbed.core.placing import Assignments, Request
from testbed.models.cluster import Policy, Start, State, assignments
from testbed.models.contention import Model
from testbed.schedulers import search
from testbed.schedulers.job import Cluster

MOST_JOBS = 8
SAME_S = 1e-12  # times within this difference are equal
Spread = tuple[int, ...]  # GPUs of each server
Planned = dict[int, tuple[frozenset[int], Spread]]  # by job: the jobs that have ended when it starts, and its GPUs


@dataclass(frozen=True)
class Options:
    pass


def schedule(
    requests: Sequence[Request], cluster: Cluster, model: Model, options: Options, *, seed: int
) -> Assignments:
    """The best there is; raises `RequestError` where that is too much to look for."""
    if len(requests) > MOST_JOBS or any(request.arrival_s for request in requests) or model.slot_s:
        raise RequestError(
            f"optimum: evaluates every schedule, so it takes at most {MOST_JOBS} jobs, without arrival times or --slot. Name another scheduler"
        )
    instance = search.Instance(requests, cluster, model)
    found = _Search(instance)
    found.go(0.0, {}, {}, {}, -1)
    ran = instance.run(_as_planned(found.planned))
    assert ran is not None  # it is a complete schedule
    return assignments(ran, found.trials)


class _Search:
    """The best schedule so far, and the number of complete ones that were reached."""

    def __init__(self, instance: search.Instance) -> None:
        self.makespan_s, self.trials = math.inf, 0
        self.planned: Planned = {}
        self._requests, self._model = instance.requests, instance.model
        self._sizes = [int(size) for size in instance.servers.sizes]
        self._least_s = [self._fastest_s(request) * request.iterations for request in instance.requests]

    def go(
        self, now_s: float, on: Mapping[int, Spread], left: Mapping[int, float], planned: Planned, after: int
    ) -> None:
        """All continuations from here; ``left``: a share of each job. Jobs that start at one moment do so in one order, ``after`` the last."""
        waiting = [job for job in range(len(self._requests)) if job not in planned]
        rest_s = {job: left.get(job, 1.0) * self._least_s[job] for job in (*on, *waiting)}
        work_s = sum(self._requests[job].gpus * took_s for job, took_s in rest_s.items())
        if now_s + max([work_s / sum(self._sizes), *rest_s.values()]) >= self.makespan_s - SAME_S:
            return
        if not rest_s:
            self.makespan_s, self.planned, self.trials = now_s, planned, self.trials + 1
            return
        done = frozenset(planned) - frozenset(on)
        free = [size - sum(spread[server] for spread in on.values()) for server, size in enumerate(self._sizes)]
        for job in waiting:
            for spread in _spreads(self._requests[job].gpus, free) if job > after else ():
                self.go(now_s, {**on, job: spread}, {**left, job: 1.0}, {**planned, job: (done, spread)}, job)
        if on:
            lasts_s = {job: self._iteration_s(job, on) * self._requests[job].iterations for job in on}
            step_s = min(left[job] * lasts_s[job] for job in on)
            stays = {job: spread for job, spread in on.items() if left[job] * lasts_s[job] - step_s > SAME_S}
            self.go(now_s + step_s, stays, {job: left[job] - step_s / lasts_s[job] for job in stays}, planned, -1)

    def _iteration_s(self, job: int, on: Mapping[int, Spread]) -> float:
        """By equations 6 to 8, under contention with running jobs."""
        spans = [server for server, count in enumerate(on[job]) if count]
        crowd = max(sum(0 < other[server] < sum(other) for other in on.values()) for server in spans)
        return self._model.iteration_s(self._requests[job], len(spans), crowd)

    def _fastest_s(self, request: Request) -> float:
        """Return a lower bound of an iteration in seconds: the faster one of one server and two servers."""
        inside = self._model.iteration_s(request, 1) if request.gpus <= max(self._sizes) else math.inf
        return min(inside, self._model.iteration_s(request, 2)) if request.gpus > 1 else inside


def _spreads(wanted: int, free: Sequence[int]) -> Iterator[Spread]:
    """So many GPUs over the servers, as far as they are free."""
    if len(free) == 1:
        if wanted <= free[0]:
            yield (wanted,)
        return
    for here in range(min(wanted, free[0]) + 1):
        for others in _spreads(wanted - here, free[1:]):
            yield here, *others


def _as_planned(planned: Planned) -> Policy:
    """Each job as soon as those have ended that it was to start after, on the first free GPUs of its servers."""

    def asked(state: State) -> Iterator[Start]:
        for job in sorted(state.waiting):
            ended, spread = planned[job]
            if ended <= state.done.keys():
                of = state.servers.of
                gpus = [np.flatnonzero(state.free & (of == server))[:count] for server, count in enumerate(spread)]
                yield job, np.concatenate(gpus)

    return asked

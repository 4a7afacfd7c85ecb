"""LAS: least attained service first, in two queues; preemptive. A job with more service than ``threshold`` goes behind
the others.

Source: Gu et al., "Tiresias: A GPU Cluster Manager for Distributed Deep Learning", NSDI 2019, discretised
two-dimensional LAS: service is GPUs × time. Jobs of one queue go by arrival, those of the first before those of the
second, and a preempted job later continues from its progress. Choices of the testbed: one threshold, given in
GPU-seconds; no promotion after a long wait; GPUs by tightest fit; the cost of a restart is an option, 0 by default.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from testbed.core.options import Number, Seconds, option
from testbed.core.placing import Assignments, Request
from testbed.models.cluster import Numbers, Start, State, Stop, Wake, assignments
from testbed.models.contention import Contended, Model
from testbed.schedulers import search
from testbed.schedulers.job import Cluster

THRESHOLD = 3600.0  # GPU-seconds
CHUNK = 1024
NO_LOAD = np.zeros(0)  # tightest fit does not use it


@dataclass(frozen=True)
class Options:
    threshold: float = option(
        THRESHOLD,
        f"GPU-seconds after which a job loses priority; default {THRESHOLD:g}",
        Number(1e-6, 1e12),
    )
    restart: float = option(0.0, "time to restart a preempted job; default 0s", Seconds())


def schedule(
    requests: Sequence[Request], cluster: Cluster, model: Model, options: Options, *, seed: int
) -> Assignments:
    """Return the schedule, with all its interruptions. Raises `RequestError` if a job does not fit on the cluster."""
    instance = search.Instance(requests, cluster, model)
    law = instance.law()
    ran = instance.run(_Policy(instance, law, options), law)
    assert ran is not None  # the first in line fits
    return assignments(ran)


class _Policy:
    """The jobs of both queues that are there, by rank, and which of them run."""

    def __init__(self, instance: search.Instance, law: Contended, options: Options) -> None:
        requests = instance.requests
        self._order = sorted(range(len(requests)), key=lambda job: (requests[job].arrival_s, job))
        self._rank = {number: rank for rank, number in enumerate(self._order)}
        self._requests, self._law, self._restart_s = requests, law, options.restart
        self._gpus = np.array([requests[number].gpus for number in self._order], dtype=np.int64)
        self._attained = np.zeros(len(requests))
        self._threshold, self._enough = options.threshold, options.threshold * (1 - 1e-12)
        self._queues = np.zeros((2, len(requests)), dtype=bool)
        self._runs = np.zeros(len(requests), dtype=bool)
        self._wakes: set[float] = set()  # times already requested
        self._since_s = 0.0
        self._room = len(instance.servers.gpus)

    def __call__(self, state: State) -> Iterator[Start | Stop | Wake]:
        for number in state.ended:
            rank = self._rank[number]
            self._queues[:, rank] = self._runs[rank] = False
        running = np.flatnonzero(self._runs)
        self._attained[running] += self._gpus[running] * (state.now_s - self._since_s)
        self._since_s = state.now_s
        behind = running[self._attained[running] >= self._enough]
        self._queues[0, behind], self._queues[1, behind] = False, True
        for number in state.arrived:
            self._queues[0, self._rank[number]] = True
        chosen = self._chosen()
        stays = np.zeros(len(self._runs), dtype=bool)
        stays[chosen] = True
        for number in sorted(self._order[rank] for rank in running[~stays[running]].tolist()):
            self._runs[self._rank[number]] = False
            yield Stop(number, self._restart_s)
        for rank in chosen[~self._runs[chosen]].tolist():
            number = self._order[rank]
            offer = search.Offer(number, self._requests[number], state, NO_LOAD, state.free, self._law)
            gpus = search.tightest_fit(offer)
            assert gpus is not None  # they were counted
            self._runs[rank] = True
            yield number, gpus
        ahead = chosen[self._queues[0, chosen]]
        if len(ahead):
            left_s = (self._threshold - self._attained[ahead]) / self._gpus[ahead]
            wakes = set((state.now_s + left_s).tolist()) - self._wakes
            self._wakes |= wakes
            for at_s in wakes:
                yield Wake(at_s)

    def _chosen(self) -> Numbers:
        """Return the jobs that fit, by rank, the first queue before the second."""
        found, room = [], self._room
        for queue in self._queues:
            present = np.flatnonzero(queue)
            for begin in range(0, len(present), CHUNK):
                if not room:
                    break
                some = present[begin : begin + CHUNK]
                while len(some):
                    fits = int(np.cumsum(self._gpus[some]).searchsorted(room, side="right"))
                    found.append(some[:fits])
                    room -= int(self._gpus[some[:fits]].sum())
                    some = some[fits:]
                    some = some[self._gpus[some] <= room]
        return np.concatenate(found) if found else np.zeros(0, dtype=np.int64)

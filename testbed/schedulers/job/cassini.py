"""CASSINI as placement: of the GPUs that tightest fit and least workload first would give, those where jobs fit together best.

Source: Rajasekaran, Ghobadi, Akella, "CASSINI: Network-Aware Job Scheduling in Machine Learning Clusters", NSDI 2024 (arXiv
2308.00852): candidates are scored by the compatibility of the jobs on each link that they share, in the mean, and a candidate
whose affinity graph has a loop is left out. Ours: the schedulers that give the candidates; uplinks are all links there are; a job
that every candidate would close a loop for waits. Its time-shifts (`testbed.schedulers.flow.cassini`) are what compatibility is for, and
equation 8 ignores them: it counts contention as for any other placement.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from testbed.core.errors import RequestError
from testbed.core.options import Boolean, option
from testbed.core.phase import Phase
from testbed.core.placing import Assignments, Request
from testbed.models import circle
from testbed.models.cluster import Numbers
from testbed.models.contention import Model
from testbed.schedulers import search
from testbed.schedulers.job import Cluster, lwf

STEP = "15"  # degrees; coarse, because compatibility is evaluated at every start, and only compared


@dataclass(frozen=True)
class Options:
    # Kept as the number of steps that a circle has.
    step: int = option(circle.angles(STEP), f"rotation step in degrees; default {STEP}", circle.angles)
    backfill: bool = option(False, search.BACKFILL_MEANING, Boolean())


def schedule(
    requests: Sequence[Request], cluster: Cluster, model: Model, options: Options, *, seed: int
) -> Assignments:
    """Return the schedule. Raises `RequestError` if a job does not fit on the cluster."""
    instance = search.Instance(requests, cluster, model)
    scores = Scores(requests, model, options.step)

    def pick(offer: search.Offer) -> Numbers | None:
        best: tuple[float, Numbers] | None = None
        for rule in (search.tightest_fit, lwf.by_server):
            gpus = rule(offer)
            if gpus is None:
                return None
            sharing = list(_sharing(offer, gpus))
            if has_loop(sharing):
                continue
            score = sum(map(scores.score, sharing)) / len(sharing) if sharing else 1.0
            if best is None or score > best[0]:
                best = score, gpus
        return None if best is None else best[1]

    return search.search(instance, [pick], [range(len(requests))], backfill=options.backfill)


def _sharing(offer: search.Offer, gpus: Numbers) -> Iterator[frozenset[int]]:
    """The jobs on each uplink that several share, were this one on ``gpus``; uplinks of the very same jobs are one."""
    own = set(offer.state.servers.of[gpus].tolist())
    found = set()
    for server, there in enumerate(offer.law.spanning):
        jobs = frozenset({*there, offer.number} if server in own and len(own) > 1 else there)
        if len(jobs) > 1 and jobs not in found:
            found.add(jobs)
            yield jobs


def has_loop(sharing: Sequence[frozenset[int]]) -> bool:
    """Return True if jobs and their shared links form a loop, around which time-shifts could contradict each other."""
    group: dict[int, int] = {}

    def root(job: int) -> int:
        while group.setdefault(job, job) != job:
            job = group[job]
        return job

    for jobs in sharing:
        roots = {root(job) for job in jobs}
        if len(roots) < len(jobs):
            return True
        for other in roots:
            group[other] = min(roots)
    return False


class Scores:
    """Compatibility of jobs on an uplink: 1 if there are shifts for which their demand never exceeds its rate."""

    def __init__(self, requests: Sequence[Request], model: Model, angles: int) -> None:
        self._requests, self._model, self._angles = requests, model, angles
        self._known: dict[frozenset[int], float] = {}

    def score(self, jobs: frozenset[int]) -> float:
        """Return the score of ``jobs``; 0 if they are too many to evaluate all shifts."""
        if jobs not in self._known:
            self._known[jobs] = self._score(sorted(jobs))
        return self._known[jobs]

    def _score(self, jobs: Sequence[int]) -> float:
        rate_bps = self._model.rate_bps
        if math.isinf(rate_bps):
            return 1.0
        iterations, phases = [], []
        for request in (self._requests[job] for job in jobs):
            lasts_s = 16 * request.gradient_bytes * (request.gpus - 1) / request.gpus / rate_bps
            iterations.append(request.compute_s + lasts_s)
            phases.append([Phase(request.compute_s, request.compute_s + lasts_s, rate_bps)])
        if not min(iterations):
            return 1.0
        _, times = circle.unify(iterations, self._angles)
        loads = [
            np.stack([circle.demand(own, rate_bps, iteration_s, count, self._angles)])
            for own, iteration_s, count in zip(phases, iterations, times, strict=True)
        ]
        try:
            fit = circle.fit(loads, [-(-self._angles // count) for count in times])
        except RequestError:
            return 0.0
        return round(1 - fit.excess / self._angles, 9)

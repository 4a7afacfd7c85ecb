"""LAS: least attained service first, in two queues; preemptive. A job that has held GPUs for ``threshold`` waits behind the others.

Source: Gu et al., "Tiresias: A GPU Cluster Manager for Distributed Deep Learning", NSDI 2019, discretised two-dimensional LAS:
service is GPUs × time, jobs of one queue go by arrival, those of the first before those of the second, and whoever is pushed
out goes on later from where it was. Ours: one threshold, given in GPU-seconds; nobody is moved up again after waiting long; GPUs by
tightest fit; what a restart takes is an option, 0 by default.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from core.options import number, option
from core.placing import Assignments, Request
from core.units import Duration
from job_schedulers import Cluster, search
from theory.cluster import Start, State, Stop, Wake, assignments
from theory.contention import Model

THRESHOLD = 3600.0  # GPU-seconds


def _seconds(text: str) -> float:
    return Duration.parse(text) / 1e9


@dataclass(frozen=True)
class Options:
    threshold: float = option(
        THRESHOLD,
        f"GPU-seconds after which a job waits behind the others; {THRESHOLD:g} by default",
        number(1e-6, 1e12),
    )
    restart: float = option(0.0, "a time: what it takes a stopped job to go on; 0s by default", _seconds)


def schedule(
    requests: Sequence[Request], cluster: Cluster, model: Model, options: Options, *, seed: int
) -> Assignments:
    """One schedule, with all its interruptions."""
    instance = search.Instance(requests, cluster, model)
    law = instance.law()
    attained = [0.0] * len(requests)
    since_s = 0.0

    def policy(state: State) -> Iterator[Start | Stop | Wake]:
        nonlocal since_s
        for job in state.ends_s:
            attained[job] += requests[job].gpus * (state.now_s - since_s)
        since_s = state.now_s
        behind = {job: attained[job] >= options.threshold * (1 - 1e-12) for job in (*state.ends_s, *state.waiting)}
        room, chosen = len(instance.servers.gpus), []
        for job in sorted(behind, key=lambda job: (behind[job], requests[job].arrives_s, job)):
            if requests[job].gpus <= room:
                room -= requests[job].gpus
                chosen.append(job)
        for job in sorted(set(state.ends_s) - set(chosen)):
            yield Stop(job, options.restart)
        for job in [job for job in chosen if job in state.waiting]:
            offer = search.Offer(job, requests[job], state, np.zeros(len(state.free)), state.free, law)
            gpus = search.tightest_fit(offer)
            assert gpus is not None  # they were counted
            yield job, gpus
        for job in chosen:
            if not behind[job]:
                yield Wake(state.now_s + (options.threshold - attained[job]) / requests[job].gpus)

    ran = instance.run(policy, law)
    assert ran is not None  # whoever is first has room
    return assignments(ran)

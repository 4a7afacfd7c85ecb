"""Schedule jobs that arrive: call a scheduler again at every arrival and every end, with only the jobs that have arrived.

An addition of the testbed: in SJF-BCO's report every job is present from the start. Running jobs keep their GPUs, and
plans for the others may change until they start. A scheduler that evaluates a single schedule uses only the present
state, and is called once. So is one with a long list whose search cannot change the jobs that start at a moment
(``schedule_as_they_arrive``).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from testbed.core.errors import RequestError
from testbed.core.placing import Assignments, At, Gpu, Request
from testbed.models.cluster import Servers, Start, State, assignments, simulate
from testbed.models.contention import Contended, Model
from testbed.schedulers import search
from testbed.schedulers.cluster import Cluster, Module

MOST_PLANNED = 1000  # jobs up to which all that wait are planned at every event, and the schedules counted


def schedule(
    module: Module, requests: Sequence[Request], cluster: Cluster, model: Model, options: Any, *, seed: int
) -> Assignments:
    """Return the assignments of jobs with arrival times; without them, those of the scheduler itself.

    Raises `RequestError` as it does.
    """
    if len(requests) > MOST_PLANNED and any(request.arrival_s for request in requests):
        in_one_pass = getattr(module, "schedule_as_they_arrive", None)
        found: Assignments | None = in_one_pass and in_one_pass(requests, cluster, model, options)
        if found is not None:
            return found
    planned = module.schedule(requests, cluster, model, options, seed=seed)
    if planned.trials == 1 or not any(request.arrival_s for request in requests):
        return planned
    servers = Servers(tuple(cluster.gpus))
    law = Contended(model, len(servers.sizes))
    numbers = {gpu: number for number, gpu in enumerate(servers.gpus)}
    number_of = {request.job: number for number, request in enumerate(requests)}
    held: dict[int, tuple[Gpu, ...]] = {}
    given_s = np.zeros(len(servers.gpus))  # estimated work assigned to each GPU so far
    rho = getattr(options, "rho", "fewest")
    trials = 0

    def estimate_s(request: Request) -> float:
        return search.estimate_s(request, servers, model, rho)

    def policy(state: State) -> Iterator[Start]:
        nonlocal trials
        if not state.waiting or min(requests[number].gpus for number in state.waiting) > state.idle.sum():
            return
        running = [
            replace(requests[number], arrival_s=0.0, iterations=_left(end_s - state.now_s, law.iteration_s(number)))
            for number, end_s in sorted(state.ends_s.items())
        ]
        waiting = [replace(requests[number], arrival_s=0.0) for number in sorted(state.waiting)]
        worked_s = given_s.copy()
        for request in running:  # their remaining work is not done
            worked_s[[numbers[gpu] for gpu in held[request.job]]] -= estimate_s(request)
        on = {request.job: held[request.job] for request in running}
        now = replace(cluster, held=on, worked_s=tuple(worked_s.tolist()))
        try:
            found = module.schedule([*running, *waiting], now, model, options, seed=seed)
        except RequestError:
            if not running:
                raise
            return  # the scheduler's limits admit no further job yet
        trials += found.trials
        for given in found.jobs:
            if given.job not in now.held and given.start == At(0):
                held[given.job] = given.gpus
                request = requests[number_of[given.job]]
                on_gpus = np.array([numbers[gpu] for gpu in given.gpus], dtype=np.int64)
                given_s[on_gpus] += estimate_s(request)
                yield number_of[given.job], on_gpus

    ran = simulate(requests, servers, policy, law, slot_s=model.slot_s)
    if ran is None:
        raise RequestError(
            "scheduler: it leaves a job waiting although no job runs or is still to arrive. Correct the scheduler."
        )
    return assignments(ran, trials)


def _left(lasts_s: float, iteration_s: float) -> int:
    """Iterations that a running job has before it, one at the least."""
    return max(1, round(lasts_s / iteration_s)) if iteration_s else 1

"""Spread: place a job's ranks on the edge routers in order, the same order for every job.

On a dumbbell, the first half is on the left and the rest on the right, so that its flows cross the bottleneck. A
topology may name the routers for each job (`edges`): each job on a ring begins at another one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from testbed.core.errors import RequestError
from testbed.core.placing import Assignments, Gpu, Request
from testbed.models.contention import Model
from testbed.schedulers.job import Cluster, at_once, check_room


@dataclass(frozen=True)
class Options:
    pass


def schedule(
    requests: Sequence[Request], cluster: Cluster, model: Model, options: Options, *, seed: int
) -> Assignments:
    """Place rank by rank on the job's edge routers; each rank at the first free GPU in its part of them.

    Raises `RequestError`.
    """
    check_room(requests, cluster)
    free = {router: list(gpus) for router, gpus in cluster.edges.items()}
    return at_once(requests, [_ranks(request, cluster.preferred(request.job), free) for request in requests], model)


def _ranks(request: Request, over: Sequence[str], free: dict[str, list[Gpu]]) -> list[Gpu]:
    """Takes what ``request`` gets out of ``free``."""
    chosen = []
    for rank in range(request.gpus):
        first, end = rank * len(over) // request.gpus, (rank + 1) * len(over) // request.gpus
        part = over[first : max(end, first + 1)]
        router = next((router for router in part if free.get(router)), None)
        if router is None:
            raise RequestError(
                "scheduler: spread puts each rank of a job behind another edge router, but no host is free at "
                f"{', '.join(part)}. Give the topology more hosts, or use `packed`, `random`, "
                "or a placement file."
            )
        chosen.append(free[router].pop(0))
    return chosen

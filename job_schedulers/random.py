"""Random: hosts drawn from the run's seed."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

from job_schedulers import Assignments, Cluster, IterationModel, Request, at_once, check_room


@dataclass(frozen=True)
class Options:
    pass


def schedule(
    requests: Sequence[Request], cluster: Cluster, model: IterationModel, options: Options, *, seed: int
) -> Assignments:
    """Each request the next of the shuffled GPUs."""
    check_room(requests, cluster)
    shuffled = cluster.gpus
    random.Random(f"place {seed}").shuffle(shuffled)
    free = iter(shuffled)
    return at_once(requests, [[next(free) for _ in range(request.gpus)] for request in requests], model)

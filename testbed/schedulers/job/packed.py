"""Packed: one edge router's hosts after the other, so that jobs keep to themselves."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from testbed.core.placing import Assignments, Request
from testbed.models.contention import Model
from testbed.schedulers.job import Cluster, at_once, check_room


@dataclass(frozen=True)
class Options:
    pass


def schedule(
    requests: Sequence[Request], cluster: Cluster, model: Model, options: Options, *, seed: int
) -> Assignments:
    """Each request the next free GPUs."""
    check_room(requests, cluster)
    free = iter(cluster.gpus)
    return at_once(requests, [[next(free) for _ in range(request.gpus)] for request in requests], model)

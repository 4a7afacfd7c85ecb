"""The input of a job scheduler, and the interface of its module."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from testbed.core.placing import Assignments, Gpu, Request
from testbed.models.contention import Model


@dataclass(frozen=True)
class Cluster:
    """The GPUs on which jobs may run."""

    edges: Mapping[str, tuple[Gpu, ...]]  # by the router they are connected to, in the order of the hosts' names
    preferred: Callable[[int], Sequence[str]]  # the edge routers that a job is best spread over
    held: Mapping[int, tuple[Gpu, ...]] = field(default_factory=dict)  # by running jobs, which keep their GPUs
    worked_s: tuple[float, ...] = ()  # estimated seconds of work assigned to each GPU so far; empty: none

    @property
    def gpus(self) -> list[Gpu]:
        """Return all GPUs, ordered by edge router."""
        return [gpu for gpus in self.edges.values() for gpu in gpus]


class Module(Protocol):
    """The interface of a file in this folder."""

    @property
    def Options(self) -> type[Any]: ...

    def schedule(
        self, requests: Sequence[Request], cluster: Cluster, model: Model, options: Any, *, seed: int
    ) -> Assignments: ...

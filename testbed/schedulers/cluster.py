"""The input of a job scheduler, and the interface of its module."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from testbed.core.placing import Assignments, Gpu, Request
from testbed.models.contention import Model


@dataclass(frozen=True)
class Cluster:
    """Where jobs may run."""

    edges: Mapping[str, tuple[Gpu, ...]]  # by the router they are connected to, in the order of the hosts' names
    preferred: Callable[[int], Sequence[str]]  # the edge routers that a job is best spread over
    held: Mapping[int, tuple[Gpu, ...]] = field(default_factory=dict)  # by jobs that run, and stay where they are
    worked_s: tuple[float, ...] = ()  # what each GPU has been given to do so far, in estimates; nothing: it is new

    @property
    def gpus(self) -> list[Gpu]:
        """All of them, one edge after the other."""
        return [gpu for gpus in self.edges.values() for gpu in gpus]


class Module(Protocol):
    """The interface of a file in this folder."""

    @property
    def Options(self) -> type[Any]: ...

    def schedule(
        self, requests: Sequence[Request], cluster: Cluster, model: Model, options: Any, *, seed: int
    ) -> Assignments: ...

"""Which GPUs a job gets and when it starts: job schedulers, one file each. ``--place spread|packed|random|FILE``.

A job scheduler is a module with

``Options``
    a frozen dataclass of what may be written behind its name, see `core.options`;
``schedule(requests, cluster, model, options, *, seed) -> Assignments``
    pure: the GPUs of each request, in their order, and its start. Raises `RequestError` where they do not fit.

Adding one is adding a file. Here every job starts at once and has a host for each of its workers, which has one GPU.
A FILE says the same by hand: a list of hosts for each job, see `job_schedulers.by_hand`.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, cast

from mininet.topo import Topo

from core import options
from core.errors import RequestError
from core.text import quoted
from job_schedulers import by_hand

USUAL = "spread"
_NO_SCHEDULERS = {"by_hand"}
Hosts = tuple[str, ...]


@dataclass(frozen=True)
class Gpu:
    """One of a server's."""

    host: str
    slot: int = 0


@dataclass(frozen=True)
class Request:
    """What a job asks for."""

    job: int
    gpus: int
    iterations: int = 0
    gradient_bytes: int = 0
    compute_s: float = 0.0  # of an iteration
    arrives_s: float = 0.0


@dataclass(frozen=True)
class At:
    """A start at this time."""

    s: float


@dataclass(frozen=True)
class After:
    """A start as soon as these jobs have ended."""

    jobs: tuple[int, ...]


@dataclass(frozen=True)
class Assignment:
    """What a job gets."""

    job: int
    gpus: tuple[Gpu, ...]  # by rank
    start: At | After
    estimate_s: float  # how long it will take, by the scheduler's model


Assignments = tuple[Assignment, ...]
IterationModel = Callable[[Request, Sequence[Gpu]], float]  # how long an iteration takes there, in s


@dataclass(frozen=True)
class Cluster:
    """Where jobs may run."""

    edges: Mapping[str, tuple[Gpu, ...]]  # by the router they are connected to, in the order of the hosts' names
    preferred: Callable[[int], Sequence[str]]  # the edge routers that a job is best spread over

    @property
    def gpus(self) -> list[Gpu]:
        """All of them, one edge after the other."""
        return [gpu for gpus in self.edges.values() for gpu in gpus]


class Module(Protocol):
    """What a file of this folder has."""

    @property
    def Options(self) -> type[Any]: ...

    def schedule(
        self, requests: Sequence[Request], cluster: Cluster, model: IterationModel, options: Any, *, seed: int
    ) -> Assignments: ...


def names() -> list[str]:
    """The job schedulers there are, the usual one first."""
    found = {module.name for module in pkgutil.iter_modules(__path__)} - _NO_SCHEDULERS
    return sorted(found, key=lambda name: (name != USUAL, name))


def is_named(text: str) -> bool:
    """Whether ``text`` is ``name`` or ``name:option=value,…`` of a job scheduler; else it is a file."""
    return text.partition(":")[0] in names()


def find(name: str) -> Module:
    """The job scheduler ``name``; raises `RequestError` naming those there are."""
    if name not in names():
        raise RequestError(f"there is no job scheduler {quoted(name)}; there are {', '.join(names())}")
    return cast(Module, importlib.import_module(f"{__name__}.{name}"))


def check(text: str) -> None:
    """Raises `RequestError` if ``text`` is neither a job scheduler with its options nor a readable file."""
    if not is_named(text):
        by_hand.read(Path(text), names())
        return
    options.parse(find(text.partition(":")[0]).Options, text)


def place(topo: Topo, workers: Sequence[int], how: str = USUAL, seed: int = 0) -> list[Hosts]:
    """The hosts of jobs with so many ``workers``; raises `RequestError` if they do not fit."""
    cluster = cluster_of(topo)
    if not is_named(how):
        found = by_hand.read(Path(how), names())
        return by_hand.hosts(Path(how), found, workers, [gpu.host for gpu in cluster.gpus])
    check(how)
    scheduler = find(how.partition(":")[0])
    requests = [Request(job, wanted) for job, wanted in enumerate(workers)]
    assigned = scheduler.schedule(requests, cluster, computing, options.parse(scheduler.Options, how), seed=seed)
    return [tuple(gpu.host for gpu in assignment.gpus) for assignment in assigned]


def cluster_of(topo: Topo) -> Cluster:
    """The hosts of ``topo``, with one GPU each."""
    routers = {node for node in topo.nodes() if topo.nodeInfo(node).get("cls") is not None}
    edges: dict[str, tuple[Gpu, ...]] = {}
    for a, b in topo.links(sort=True):
        for host, router in ((a, b), (b, a)):
            if host not in routers and not topo.isSwitch(host):
                edges[router] = (*edges.get(router, ()), Gpu(host))
    return Cluster(edges, topo.edges if hasattr(topo, "edges") else lambda _job: list(edges))


def computing(request: Request, _gpus: Sequence[Gpu]) -> float:
    """The simplest model: an iteration takes what it computes, wherever."""
    return request.compute_s


def at_once(requests: Sequence[Request], gpus: Sequence[Sequence[Gpu]], model: IterationModel) -> Assignments:
    """Every request on its ``gpus`` from the beginning."""
    return tuple(
        Assignment(request.job, tuple(own), At(0), request.iterations * model(request, own))
        for request, own in zip(requests, gpus, strict=True)
    )


def check_room(requests: Sequence[Request], cluster: Cluster) -> None:
    """Raises `RequestError` if the requests together ask for more GPUs than there are."""
    wanted = [request.gpus for request in requests]
    if sum(wanted) > len(cluster.gpus):
        raise RequestError(
            f"topo: {len(wanted)} jobs of {'/'.join(map(str, sorted(set(wanted))))} workers do not fit: "
            f"{len(cluster.gpus)} hosts, one worker each. Give the topology more (`dumbbell,8`, docs/topologies.md), or none of its "
            "arguments: then it is made large enough."
        )

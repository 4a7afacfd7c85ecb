"""Job schedulers, one file each: the GPUs and the start of each job. ``--scheduler spread|sjf_bco|…|FILE``.

A job scheduler is a module with

``Options``
    a frozen dataclass of the options behind its name, see `testbed.core.options`;
``schedule(requests, cluster, model, options, *, seed) -> Assignments``
    a pure function: the GPUs of each request, in their order, and its start. Raises `RequestError` for requests that do not fit.

A new file adds a job scheduler. `testbed.schedulers.search` has shared parts of those that try several schedules, and
`testbed.schedulers.online` calls one again as jobs arrive. In a run, jobs that request GPUs get them as in ``mltcp
schedule``. Other jobs start at once, with a host for each worker, of which one GPU counts. A FILE sets the placement by
hand: a list of hosts for each job, see `testbed.schedulers.placement_file`.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

from mininet.topo import Topo

from testbed import registry
from testbed.core import options, system_text
from testbed.core.errors import RequestError
from testbed.core.placing import After as After
from testbed.core.placing import Assignment, Assignments, At, Gpu, Request
from testbed.models.contention import Model
from testbed.schedulers import placement_file
from testbed.schedulers.cluster import Cluster as Cluster
from testbed.schedulers.cluster import Module as Module

USUAL = "spread"
Hosts = tuple[str, ...]


def names() -> list[str]:
    """The job schedulers there are, the usual one first."""
    return sorted(registry.names(registry.JOB_SCHEDULER), key=lambda name: (name != USUAL, name))


def is_named(text: str) -> bool:
    """Return True if ``text`` is a job scheduler (``name:option=value,…`` or ``./mine.py:…``); else it is a file of
    hosts."""
    name = system_text.name_of(text)
    return name in names() or registry.is_file_name(name) or name in registry.installed(registry.JOB_SCHEDULER)


def find(name: str) -> Module:
    """The job scheduler ``name``; raises `registry.UnknownContentError`."""
    return cast(Module, registry.find(registry.JOB_SCHEDULER, name))


def parse(text: str) -> tuple[Module, Any]:
    """The job scheduler ``name`` or ``name:option=value,…``, and its `Options`; raises `registry.UnknownContentError` or `OptionError`."""
    module = find(system_text.name_of(text))
    return module, options.parse(module.Options, text)


def check(text: str) -> None:
    """Raises `RequestError` if ``text`` is neither a job scheduler with its options nor a readable file."""
    if not is_named(text):
        placement_file.read(Path(text))
        return
    parse(text)


def place(topo: Topo, workers: Sequence[int], how: str = USUAL, seed: int = 0) -> list[Hosts]:
    """The hosts of jobs with so many ``workers``; raises `RequestError` if they do not fit."""
    cluster, hosts = make_cluster(topo), map_hosts(topo)
    if is_named(how):
        scheduler, chosen = parse(how)
        requests = [Request(job, wanted, iterations=1, compute_s=1.0) for job, wanted in enumerate(workers)]
        check_room(requests, cluster)
        assigned = scheduler.schedule(requests, cluster, Model(), chosen, seed=seed)
        if late := [one.job for one in assigned.jobs if one.start != At(0)]:
            raise RequestError(
                f"scheduler: {how} makes job {late[0]} wait for GPUs, but in a run all jobs start together. Give the "
                "topology more hosts, or use `spread`, `packed`, `random`, or a placement file."
            )
        return [tuple(hosts[gpu] for gpu in assignment.gpus) for assignment in assigned.jobs]
    found = placement_file.read(Path(how))
    return placement_file.hosts(Path(how), found, workers, [hosts[gpu] for gpu in cluster.gpus])


def map_hosts(topo: Topo, *, shared: bool = False) -> dict[Gpu, str]:
    """Return the host of each GPU: a host of a server if the topology groups hosts (`servers`), else the host is the
    server.

    ``shared``: with all ``gpus`` of a host; else with one, for its single worker.
    """
    inside = topo.servers() if hasattr(topo, "servers") else {}
    found = {Gpu(server, slot): host for server, hosts in inside.items() for slot, host in enumerate(hosts)}
    of_nic = _servers(topo)
    nodes = [node for node in topo.hosts() if topo.nodeInfo(node).get("cls") is None and node not in found.values()]
    slots = {of_nic.get(node, node): topo.nodeInfo(node).get("gpus", 1) if shared else 1 for node in nodes}
    return found | {Gpu(host, slot): host for host in slots for slot in range(slots[host])}


def _servers(topo: Topo) -> dict[str, str]:
    """By host, the server of which it is one of several interfaces."""
    found: dict[str, tuple[str, ...]] = getattr(topo, "nic_hosts", {})
    return {nic: server for server, own in found.items() for nic in own}


def make_cluster(topo: Topo, *, shared: bool = False) -> Cluster:
    """The GPUs of ``topo``, by the router that their hosts are connected to."""
    gpus: dict[str, tuple[Gpu, ...]] = {}
    for gpu, host in map_hosts(topo, shared=shared).items():
        gpus[host] = (*gpus.get(host, ()), gpu)
    routers = {node for node in topo.nodes() if topo.nodeInfo(node).get("cls") is not None}
    edges: dict[str, tuple[Gpu, ...]] = {}
    of_nic = _servers(topo)
    for a, b in topo.links(sort=True):
        for host, router in ((a, b), (b, a)):
            if host not in routers and not topo.isSwitch(host):
                own = edges.get(router, ())
                edges[router] = (*own, *(gpu for gpu in gpus[of_nic.get(host, host)] if gpu not in own))
    return Cluster(edges, topo.edges if hasattr(topo, "edges") else lambda _job: list(edges))


def at_once(requests: Sequence[Request], gpus: Sequence[Sequence[Gpu]], model: Model) -> Assignments:
    """Return assignments of every request to its ``gpus`` from the start."""
    return Assignments(
        tuple(
            Assignment(
                request.job,
                tuple(own),
                At(0),
                request.iterations * model.iteration_s(request, len({gpu.host for gpu in own})),
            )
            for request, own in zip(requests, gpus, strict=True)
        )
    )


class NoRoomError(RequestError):
    """The topology has fewer hosts than the jobs need."""


def check_room(requests: Sequence[Request], cluster: Cluster) -> None:
    """Raise `NoRoomError` if the requests together need more GPUs than there are."""
    wanted = [request.gpus for request in requests]
    if sum(wanted) > len(cluster.gpus):
        raise NoRoomError(
            f"topo: {len(wanted)} jobs of {'/'.join(map(str, sorted(set(wanted))))} workers need {sum(wanted)} hosts, but the topology has {len(cluster.gpus)} "
            "(one worker per host)."
        )

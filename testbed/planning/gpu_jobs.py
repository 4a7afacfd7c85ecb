"""Jobs that request GPUs: their GPUs, their start times, and the exchanges of their servers.

A job with equal ranks has one worker for each server on which it holds GPUs. Inside a server it exchanges at `intra_rate` and
crosses no link. The ring enters each server once, and each of its edges between servers carries 2 m (w − 1) / w bytes, for a
tensor of m bytes and w GPUs.

A job whose ranks differ, or have several groups, has one worker for each GPU. Exchanges among ranks of one server go at
`intra_rate`. Of exchanges that cross the network, the parts between ranks of one server take no time.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

import msgspec
from mininet.topo import Topo

from testbed.core.errors import RequestError
from testbed.core.placing import After, Assignment, At, Gpu, Request
from testbed.core.runs.plan import Life
from testbed.core.units import Duration, Size
from testbed.models.contention import Model
from testbed.schedulers import job
from testbed.traces.trace import Operation, Trace


@dataclass(frozen=True)
class Given:
    """The hosts of a job: one for each of its servers, in the order of its ring, or for each of its ranks."""

    hosts: tuple[str, ...]
    life: Life | None = None  # None: it runs from the start
    fewest: int = 0  # smallest number of servers that hold its GPUs, on an empty cluster
    servers: tuple[int, ...] = ()  # by rank, by number; empty: a worker is a server

    @property
    def packed(self) -> Given:
        """Return the same job on at most this number of its servers."""
        if not self.servers:
            return replace(self, hosts=self.hosts[: self.fewest])
        if len(set(self.servers)) <= self.fewest:
            return self
        each = -(-len(self.servers) // self.fewest)
        servers = tuple(rank // each for rank in range(len(self.servers)))
        return replace(self, hosts=tuple(self.hosts[self.servers.index(one)] for one in servers), servers=servers)


def give(
    topo: Topo, requests: Sequence[Request], how: str, model: Model, seed: int, by_rank: Collection[int] = ()
) -> list[Given]:
    """GPUs of ``topo`` by the job scheduler ``how``, in the order of the requests; raises `RequestError`.

    ``by_rank``: jobs that have a worker for each GPU.
    """
    from testbed.models.cluster import Servers  # noqa: PLC0415 (NumPy, which few plans need)
    from testbed.schedulers import online  # noqa: PLC0415

    if not job.is_named(how):
        raise RequestError(
            f"scheduler: {how} names a host for each worker, but these jobs request GPUs. Name a job scheduler for GPUs: "
            f"{', '.join(job.names())}"
        )
    cluster, hosts = job.make_cluster(topo, shared=True), job.map_hosts(topo, shared=True)
    if large := next((one for one in requests if one.gpus > len(cluster.gpus)), None):
        raise RequestError(
            f"topo: job {large.job} requests {large.gpus} GPUs, but there are only {len(cluster.gpus)} in all. Give the topology more "
            "(`cluster,8,8`, `star,4,8`, docs/reference/topologies.md), or the job fewer"
        )
    module, chosen = job.parse(how)
    assigned = online.schedule(module, requests, cluster, model, chosen, seed=seed)
    if stopped := next((one for one in assigned.jobs if one.stints), None):
        raise RequestError(
            f"scheduler: {how} preempts job {stopped.job} and a run cannot preempt jobs. Use it in `mltcp schedule`, or name another scheduler"
        )
    every = Servers(tuple(cluster.gpus))
    found = []
    for wanted, one in zip(requests, assigned.jobs, strict=True):
        life, fewest = _life(wanted, one), every.fewest(wanted.gpus)
        if wanted.job in by_rank:
            names = list(dict.fromkeys(gpu.host for gpu in one.gpus))
            numbers = tuple(names.index(gpu.host) for gpu in one.gpus)
            found.append(Given(tuple(hosts[gpu] for gpu in one.gpus), life, fewest, numbers))
        else:
            found.append(Given(_ring(one.gpus, hosts), life, fewest))
    return found


def servers(topo: Topo) -> dict[str, int]:
    """Return the number of GPUs of each server, by name."""
    return dict(Counter(gpu.host for gpu in job.make_cluster(topo, shared=True).gpus))


def _ring(gpus: Sequence[Gpu], hosts: Mapping[Gpu, str]) -> tuple[str, ...]:
    """Each server's host once, that of the first GPU there, in the order of these."""
    first: dict[str, str] = {}
    for gpu in gpus:
        first.setdefault(gpu.host, hosts[gpu])
    return tuple(first.values())


def _life(wanted: Request, given: Assignment) -> Life:
    arrival_ns = round(wanted.arrival_s * 1e9)
    at_ns = max(arrival_ns, round(given.start.s * 1e9)) if isinstance(given.start, At) else arrival_ns
    after = given.start.jobs if isinstance(given.start, After) else ()
    return Life(tuple(f"{gpu.host}:{gpu.slot}" for gpu in given.gpus), arrival_ns, at_ns, after)


def on_servers(trace: Trace, gpus: int, servers: int, model: Model) -> Trace:
    """Return the iteration as replayed by one worker on each of ``servers`` servers (equation 8 of SJF-BCO, without
    contention).

    An all-reduce inside one server becomes a computation of the same length, so a trace that exchanges during its
    backward pass takes as long as one that exchanges after it. The costs of addition and ξ2 are added at the end.
    """
    operations = [_on_servers(op, gpus, servers, model) for op in trace.operations]
    bits = 8 * trace.bytes_per_iteration * (gpus - 1) / gpus
    beyond_ns = round((bits / model.reduce_bps + model.xi2_s * servers) * 1e9)
    if beyond_ns:
        everything = tuple(op.id for op in operations)
        operations.append(Operation(id="overhead", kind="compute", duration=Duration(beyond_ns), after=everything))
    return msgspec.structs.replace(trace, operations=tuple(operations))


def _on_servers(op: Operation, gpus: int, servers: int, model: Model) -> Operation:
    if op.kind == "compute":
        return op
    crosses = (op.bytes or 0) * (gpus - 1) / gpus
    if servers == 1:
        duration = Duration(round(2 * 8 * crosses / model.intra_bps * 1e9))
        return Operation(id=op.id, kind="compute", duration=duration, after=op.after)
    # A ring over n workers carries 2 (n − 1) / n of its tensor over each edge.
    return msgspec.structs.replace(op, bytes=Size(max(1, round(crosses * servers / (servers - 1)))))

"""A participant that replays a trace: `testbed.replay.worker` in its host's namespace."""

from __future__ import annotations

import os
import sysconfig

import msgspec

from testbed.congestion import catalogue
from testbed.core.environment import PACKAGES
from testbed.core.runs.plan import JobPlan
from testbed.linux.network import Network
from testbed.linux.participants.child import Child, Module
from testbed.linux.participants.participant import Participant
from testbed.networks import spraying
from testbed.replay import inside as inside_server
from testbed.transports import COUNTERS_BYTES

WITH_LIBRARIES = {"PYTHONPATH": os.pathsep.join([PACKAGES, sysconfig.get_path("purelib")])}


def mark(job: int) -> int:
    """The SO_MARK of a job's sockets, where they share their ratio."""
    return job + 1


class Replay(Participant):
    """One rank of a replayed job."""

    def __init__(
        self, job: JobPlan, rank: int, network: Network, congestion_control: str, port: int, lines: list[int], *,
        virtual_time: bool, mtu: int = 1500, queue_bytes: int | None = None, messages: str = "rounds", paths: int = 1,
        windows: bool = False, replicas: int | None = None,
    ) -> None:  # fmt: skip
        """``lines``: descriptors that lead to the other ranks (rank 0), or from rank 0.

        ``paths``: addresses of each host. ``queue_bytes``: what waits at most before its host's interface. ``replicas``: a file in
        memory for the parameters of all ranks, where they learn in a ring.
        """
        super().__init__(job, rank)
        if not job.by_tcp:
            self.counters = os.memfd_create("counters")
            os.ftruncate(self.counters, COUNTERS_BYTES * job.channels * max(1, len(job.groups)))
        name = f"mltcp {os.getpid()} {job.job} {port}"
        inside = inside_server.bound(name, rank) if any(op.inside_ns is not None for op in job.operations) else None
        own = [] if inside is None else [inside.fileno()]
        inherited = [*own, *lines, *(file for file in (self.counters, replicas) if file is not None)]
        self._child = Child(
            self.what,
            Module("testbed.replay.worker", copied=virtual_time),
            namespace=network[self.host].namespace,
            pass_fds=inherited,
            environment={} if job.trains is None else WITH_LIBRARIES,
        )
        self._child.tell({
            "job": job.job, "rank": rank, "port": port, "transport": job.transport, "congestion_control": congestion_control,
            "counters": self.counters, "mtu": mtu, "queue_bytes": queue_bytes,
            "mark": mark(job.job) if catalogue.effective(job.cc).get("share") else 0,
            "addresses": [network[name].IP() for name in job.hosts],
            "paths": [[spraying.address(network.topo, name, path) for path in range(paths)] for name in job.hosts]
            if paths > 1 else [],
            "operations": msgspec.to_builtins(
                job.operations if not job.groups else [op for op in job.operations if op.ranks is None or rank in op.ranks]
            ),
            "groups": [one.flows for one in job.groups], "channels": job.channels, "offset_ns": job.offset_ns,
            "noise": job.noise, "seed": job.seed, "window": job.window, "partition": job.partition, "trains": job.trains,
            "replicas": replicas, "inside": own[0] if own else None, "inside_name": name,
            "virtual_time": virtual_time, "each_message": messages == "full", "windows": windows,
            "exclusive": bool(job.exclusive), "iterations": None if job.life is None else job.iterations,
            "grid": None if job.grid is None else [job.grid.period_ns, job.grid.phase_ns], "lines": lines,
            "bands": list(job.bands), "falls": job.falls, "bytes": job.bytes_per_worker[rank] if job.bands else 0,
        })  # fmt: skip

        if inside is not None:
            inside.close()

    def connect(self, at_ns: int) -> None:
        self._child.tell({"connect_ns": at_ns})

    def start(self, at_ns: int, wait_from_ns: int, offset_ns: int | None = None) -> None:
        own = {} if offset_ns is None else {"offset_ns": offset_ns}
        self._child.tell({"start_ns": at_ns, "wait_from_ns": wait_from_ns, **own})

    def grant(self) -> None:
        self._child.tell({"granted": 1})

    def close(self) -> None:
        super().close()
        if self.counters is not None:
            os.close(self.counters)
            self.counters = None

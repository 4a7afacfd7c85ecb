"""Start the workers of a run in their hosts, bring them to a common start, read their iterations."""

from __future__ import annotations

import importlib
import itertools
import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from testbed import transports
from testbed.core import system_text
from testbed.core.errors import TestbedError
from testbed.core.runs.plan import JobPlan, Plan
from testbed.linux.network import Network
from testbed.linux.participants.child import readable
from testbed.linux.participants.participant import Participant
from testbed.linux.participants.program import Program
from testbed.linux.participants.replay import Replay
from testbed.replay import training
from testbed.traces import collectives
from testbed.transports import Connection

PORT = 5001
PORTS_APART = 100  # between jobs that may be on the same hosts
PORT_BEFORE = 15001  # of workers that start first: the kernel remembers connections for a while
HANDSHAKE_S = 90.0  # in an emulated VM on a busy machine, Python starts in half a minute
# Processes that wait for the same instant are woken in the order in which they began to wait. That order must not depend on
# their start-up times (on what Python found compiled, for example). Workers therefore connect one after the other.
CONNECT_APART_NS, WAIT_APART_NS = 10**6, 10**3
WAIT_NS = 10**8  # before the first iteration begins, all workers wait for it
PROGRAM_S = 300.0

Packed = bytes  # as msgpack; in `Record` that name is a field's


@dataclass(frozen=True)
class Record:
    """One iteration of one worker, as `testbed.replay.worker` reports it; times in ns after the start."""

    job: int
    rank: int
    iteration: int
    start: int
    comm_start: int
    end: int
    bytes: int
    late: int
    operations: Sequence[Sequence[Any]]  # its collectives: id, start, end
    # Where some messages may be lost: how they ended (`testbed.replay.messages`), packed: a process in user-mode Linux has 65,530 pieces of
    # memory (vm.max_map_count), which half a million lists would take.
    messages: Packed = b""
    windows: Sequence[Sequence[int]] = ()  # if asked for: what TCP keeps of each of its flows at the end
    accuracy: float | None = None  # of what it learns, if that was looked at
    replica_divergence: float | None = None  # its workers' parameters, if it serves them
    datagrams: dict[str, int] | None = field(
        default=None, compare=False
    )  # cumulative, of a transport over UDP (`transports.Datagrams`)

    @classmethod
    def parse(cls, job: int, rank: int, line: Sequence[Any]) -> Record:
        """From one line of a worker: times, bytes and operations, and optional values by name."""
        *always, beside = line if isinstance(line[-1], dict) else [*line, {}]
        packed = {"messages": msgspec.msgpack.encode(beside["messages"])} if "messages" in beside else {}
        return cls(job, rank, *always, **{**beside, **packed})

    def ended(self) -> list[list[Any]]:
        """How its messages ended."""
        return msgspec.msgpack.decode(self.messages, type=list[list[Any]]) if self.messages else []


def _ports(job: JobPlan) -> int:
    """How many ports are kept for a job that others share hosts with."""
    return max(PORTS_APART, job.channels * sum(max(len(job.hosts), len(one.flows)) for one in job.groups))


def wait_from_ns(start_ns: int, number: int) -> int:
    """When the process of that number begins to wait for the first iteration."""
    return start_ns - WAIT_NS + number * WAIT_APART_NS


class GoneError(TestbedError):
    """A worker of ``job`` has ended, which none does by itself."""

    def __init__(self, job: int, message: str) -> None:
        super().__init__(message)
        self.job = job


class Workers:
    """All workers of a run; kills what it started when the block ends."""

    def __init__(
        self, network: Network, jobs: tuple[JobPlan, ...], congestion_control: Callable[[JobPlan], str],
        before_connect: Callable[[], None] = lambda: None, *, virtual_time: bool = False, port: int = PORT,
        plan: Plan | None = None,
    ) -> None:  # fmt: skip
        """``plan``: the plan of these jobs, for transports that need their link's properties."""
        self.participants: list[Participant] = []
        self.network = network
        self.jobs = jobs
        self.congestion_control = congestion_control
        self.before_connect = before_connect
        self.virtual_time = virtual_time
        self.port = port
        self.plan = plan

    def __enter__(self) -> Workers:
        try:
            for job in self.jobs:
                self._start(job)
            self._await("listening")
            self.before_connect()
            now_ns = time.monotonic_ns()
            for number, worker in enumerate(self.participants, 1):
                worker.connect(now_ns + number * CONNECT_APART_NS)
            for worker, answer in self._await("flows"):
                worker.flows = [Connection(**flow) for flow in answer["flows"]]
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *exception: object) -> None:
        for worker in self.participants:
            worker.close()

    def _start(self, job: JobPlan) -> None:
        ranks = range(len(job.hosts))
        port = self.port
        if job.life is not None:
            port += sum(map(_ports, self.jobs[: self.jobs.index(job)]))
        if job.program is not None:
            for rank in ranks:
                self.participants.append(
                    Program(
                        job, rank, self.network, self.congestion_control(job),
                        mtu=self.plan.link.mtu if self.plan else 1500, messages=self.plan.messages if self.plan else "rounds",
                    )
                )  # fmt: skip
            return
        # Imported here, so that no copy imports them again.
        transports.find(system_text.name_of(job.transport))
        if job.trains is not None and self.virtual_time:
            importlib.import_module("testbed.replay.training.ring_training")
            _ = training.parse(job.trains).task
        for name in filter(None, (operation.algorithm for operation in job.collectives)):
            collectives.find(name)
        # Where a grid decides when an iteration begins, rank 0 applies it and notifies the others.
        pipes = [os.pipe() for _ in ranks[1:]] if job.grid else []
        replicas = None
        if job.trains is not None and any(op.algorithm == "ring" for op in job.collectives):
            replicas = os.memfd_create("replicas")
            os.ftruncate(replicas, training.parse(job.trains).shared_bytes(len(ranks)))
        try:
            for rank in ranks:
                lines = [write for _, write in pipes] if rank == 0 else [pipes[rank - 1][0]] if pipes else []
                self.participants.append(
                    Replay(
                        job, rank, self.network, self.congestion_control(job), port, lines,
                        virtual_time=self.virtual_time, mtu=self.plan.link.mtu if self.plan else 1500,
                        queue_bytes=self.plan.host_queue_bytes(job.hosts[rank]) if self.plan else None,
                        messages=self.plan.messages if self.plan else "rounds",
                        paths=self.plan.paths if self.plan else 1,
                        windows=self.virtual_time and self.plan is not None and self.plan.stop_when_periodic > 0,
                        replicas=replicas,
                    )
                )  # fmt: skip
        finally:
            for end in (*itertools.chain(*pipes), *([] if replicas is None else [replicas])):
                os.close(end)

    def _await(self, key: str) -> list[tuple[Participant, dict[str, Any]]]:
        """One answer with ``key`` from every worker."""
        answers: dict[int, tuple[Participant, dict[str, Any]]] = {}
        # Real programs import PyTorch first, several on each core.
        patience_s = PROGRAM_S if any(job.program for job in self.jobs) else HANDSHAKE_S
        deadline = time.monotonic() + patience_s
        while len(answers) < len(self.participants):
            if time.monotonic() > deadline:
                raise TestbedError(
                    f"not every worker answered within {patience_s:g} s ({key}). Check the load of the machine, or use fewer workers."
                )
            for worker, line in self.read(deadline):
                if key not in line:
                    raise TestbedError(f"{worker.what} sent {line!r} instead of {key}")
                answers[id(worker)] = (worker, line)
        return [answers[id(worker)] for worker in self.participants]

    def read(self, until: float) -> Iterator[tuple[Participant, Any]]:
        """The next records of the workers (none, if the time ``until`` comes first). Raises `GoneError`.

        A worker whose peer was killed fails, too. The error reports the worker that was killed.
        """
        ready = readable(self.participants, max(0.0, until - time.monotonic()))
        lines: list[tuple[Participant, Any]] = []
        gone: GoneError | None = None
        for worker in ready:
            try:
                lines += [(worker, line) for line in worker.lines()]
            except TestbedError as error:
                gone = gone or self._gone(worker, error)
        yield from lines
        if gone is not None:
            raise gone

    def _gone(self, worker: Participant, error: TestbedError) -> GoneError:
        time.sleep(0.2)
        for other in self.participants:
            if other.job == worker.job and other.was_killed():
                try:
                    other.died()
                except TestbedError as killed:
                    error = killed
        return GoneError(worker.job, str(error))

    def leave(self, job: int) -> None:
        """A job departs: its workers are killed."""
        leaving = [worker for worker in self.participants if worker.job == job]
        self.participants = [worker for worker in self.participants if worker.job != job]
        for worker in leaving:
            worker.kill()  # all of them before the first is waited for: they would see each other go
        for worker in leaving:
            worker.close()

    def start(self, start_ns: int) -> None:
        """Begin the first iteration at ``start_ns`` of the monotonic clock, plus each job's offset.

        Jobs that hold GPUs are started by `begin`.
        """
        lives = {job.job for job in self.jobs if job.life is not None}
        for number, worker in enumerate(self.participants):
            if worker.job not in lives:
                worker.start(start_ns, wait_from_ns(start_ns, number))

    def begin(self, job: int, start_ns: int, offset_ns: int) -> None:
        """Begin the first iteration of ``job`` so long after ``start_ns``."""
        for number, worker in enumerate(self.participants):
            if worker.job == job:
                worker.start(start_ns, wait_from_ns(start_ns + offset_ns, number), offset_ns)

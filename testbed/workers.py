"""Start the workers of a run in their hosts, bring them to a common start, read their iterations."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import select
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NoReturn, Protocol

from testbed import netns
from testbed.environment import ROOT
from testbed.errors import TestbedError
from testbed.network import Network
from testbed.plan import JobPlan

PORT = 5001
PORT_BEFORE = 15001  # of workers that come first: the kernel remembers connections for a while
HANDSHAKE_S = 30.0
# Who waits for the same instant is woken in the order in which they began to wait. That must not follow from how each came there
# (what Python found compiled, for one): workers connect, and begin to wait, one after the other.
CONNECT_APART_NS, WAIT_APART_NS = 10**6, 10**3
WAIT_NS = 10**8  # before the first iteration begins, everybody waits for it
PROGRAM_S = 300.0


def child_environment() -> dict[str, str]:
    """What processes of a run see of the caller's environment: nothing but where the code is."""
    return {
        "PATH": "/usr/sbin:/usr/bin:/sbin:/bin",
        "PYTHONPATH": ROOT,
        "PYTHONHASHSEED": "0",
        "PYTHONDONTWRITEBYTECODE": "1",
        "LC_ALL": "C.UTF-8",
    }


def python(module: str) -> list[str]:
    """One of our own modules as a process that starts fast."""
    return [sys.executable, "-S", "-P", "-m", module]


class Words(Protocol):
    """What a process says on stderr; read when it has died."""

    def seek(self, offset: int, /) -> object: ...
    def read(self) -> bytes: ...
    def close(self) -> None: ...


class Child:
    """A process of the run that talks in lines of JSON; ``what`` names it in messages."""

    def __init__(
        self, what: str, command: list[str], *, namespace: int | None = None, pass_fds: list[int] | None = None,
        environment: dict[str, str] | None = None,
    ) -> None:  # fmt: skip
        self.what = what
        self.pending = b""
        self.errors: Words = tempfile.TemporaryFile(dir="/dev/shm")  # noqa: SIM115 (closed by `close`)
        with netns.entered(namespace) if namespace is not None else contextlib.nullcontext():
            self.process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.errors,
                env=child_environment() | (environment or {}), pass_fds=pass_fds or [],
            )  # fmt: skip

    def fileno(self) -> int:
        assert self.process.stdout is not None
        return self.process.stdout.fileno()

    def tell(self, message: Any) -> None:
        assert self.process.stdin is not None
        try:
            self.process.stdin.write(json.dumps(message).encode() + b"\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            self.died()

    def lines(self) -> list[Any]:
        """What it has said, in whole lines; waits for some. Raises `TestbedError` if it is gone."""
        data = os.read(self.fileno(), 65536)
        if not data:
            self.died()
        *complete, self.pending = (self.pending + data).split(b"\n")
        return [json.loads(line) for line in complete]

    def died(self) -> NoReturn:
        """Say how it ended."""
        code = self.process.wait()
        self.errors.seek(0)
        words = self.errors.read().decode(errors="replace").strip().splitlines()
        how = f"was killed by signal {-code}" if code < 0 else f"ended with code {code}"
        raise TestbedError(f"{self.what} {how}" + (f": {words[-1]}" if words else ""))

    def close(self) -> None:
        """Kill it and close everything that led to it."""
        self.process.kill()
        self.process.wait()
        for stream in (self.process.stdin, self.process.stdout, self.errors):
            if stream is not None:
                with contextlib.suppress(BrokenPipeError):
                    stream.close()


class Worker(Child):
    """One running worker; ``flows`` are those it sends, once connected."""

    def __init__(self, job: JobPlan, rank: int, network: Network, pass_fds: list[int]) -> None:
        self.job, self.rank, self.host = job.job, rank, job.hosts[rank]
        self.flows: list[dict[str, Any]] = []
        super().__init__(
            f"worker {rank} of job {job.job} on host {self.host}", python("workloads.worker"),
            namespace=network[self.host].namespace, pass_fds=pass_fds,
        )  # fmt: skip


@dataclass(frozen=True)
class Record:
    """One iteration of one worker, as `workloads.worker` reports it; times in ns after the start."""

    job: int
    rank: int
    iteration: int
    start: int
    comm_start: int
    end: int
    bytes: int
    late: int
    operations: list[tuple[str, int, int]]  # its collectives: id, start, end


def wait_from_ns(start_ns: int, number: int) -> int:
    """When the process of that number begins to wait for the first iteration."""
    return start_ns - WAIT_NS + number * WAIT_APART_NS


class Workers:
    """All workers of a run; kills what it started when the block ends."""

    def __init__(
        self, network: Network, jobs: tuple[JobPlan, ...], congestion_control: Callable[[JobPlan], str],
        before_connect: Callable[[], None] = lambda: None, *, virtual_time: bool = False, port: int = PORT,
    ) -> None:  # fmt: skip
        self.workers: list[Worker] = []
        self.network = network
        self.jobs = jobs
        self.congestion_control = congestion_control
        self.before_connect = before_connect
        self.virtual_time = virtual_time
        self.port = port

    def __enter__(self) -> Workers:
        try:
            for job in self.jobs:
                self._start(job)
            self._await("listening")
            self.before_connect()
            now_ns = time.monotonic_ns()
            for number, worker in enumerate(self.workers, 1):
                worker.tell({"connect_ns": now_ns + number * CONNECT_APART_NS})
            for worker, answer in self._await("flows"):
                worker.flows = answer["flows"]
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *exception: object) -> None:
        for worker in self.workers:
            worker.close()

    def _start(self, job: JobPlan) -> None:
        ranks = range(len(job.hosts))
        if job.program is not None:
            from testbed.programs import Program  # noqa: PLC0415 (knows this module)

            for rank in ranks:
                self.workers.append(Program(job, rank, self.network, self.congestion_control(job)))
            return
        # Where a grid decides when an iteration begins, rank 0 applies it and tells the others.
        pipes = [os.pipe() for _ in ranks[1:]] if job.grid else []
        try:
            for rank in ranks:
                lines = [write for _, write in pipes] if rank == 0 else [pipes[rank - 1][0]] if pipes else []
                self._start_worker(job, rank, lines)
        finally:
            for end in itertools.chain(*pipes):
                os.close(end)

    def _start_worker(self, job: JobPlan, rank: int, lines: list[int]) -> None:
        worker = Worker(job, rank, self.network, lines)
        self.workers.append(worker)
        worker.tell({
            "job": job.job, "rank": rank, "port": self.port, "congestion_control": self.congestion_control(job),
            "addresses": [self.network[name].IP() for name in job.hosts],
            "operations": list(job.operations), "channels": job.channels, "offset_ns": job.offset_ns,
            "noise": job.noise, "seed": job.seed,
            "virtual_time": self.virtual_time,
            "grid": None if job.grid is None else [job.grid.period_ns, job.grid.phase_ns], "lines": lines,
            "bands": list(job.bands), "bytes": job.bytes_per_worker[rank] if job.bands else 0,
        })  # fmt: skip

    def _await(self, key: str) -> list[tuple[Worker, dict[str, Any]]]:
        """One answer with ``key`` from every worker."""
        answers: dict[int, tuple[Worker, dict[str, Any]]] = {}
        # Real programs import PyTorch first, several on each core.
        patience_s = PROGRAM_S if any(job.program for job in self.jobs) else HANDSHAKE_S
        deadline = time.monotonic() + patience_s
        while len(answers) < len(self.workers):
            if time.monotonic() > deadline:
                raise TestbedError(f"not every worker answered within {patience_s:g} s ({key})")
            for worker, line in self.read(deadline):
                if key not in line:
                    raise TestbedError(f"{worker.what} said {line!r}, not {key}")
                answers[id(worker)] = (worker, line)
        return [answers[id(worker)] for worker in self.workers]

    def read(self, until: float) -> Iterator[tuple[Worker, Any]]:
        """What the workers say next (nothing, if the time ``until`` comes first).

        A worker whose peer was killed fails, too: the one that was killed is reported.
        """
        ready, _, _ = select.select(self.workers, [], [], max(0.0, until - time.monotonic()))
        try:
            lines = [(worker, line) for worker in ready for line in worker.lines()]
        except TestbedError:
            time.sleep(0.2)
            for worker in self.workers:
                if (worker.process.poll() or 0) < 0:
                    worker.died()
            raise
        yield from lines

    def leave(self, job: int) -> None:
        """A job departs: its workers are killed."""
        leaving = [worker for worker in self.workers if worker.job == job]
        self.workers = [worker for worker in self.workers if worker.job != job]
        for worker in leaving:
            worker.process.kill()  # all of them before the first is waited for: they would see each other go
        for worker in leaving:
            worker.close()

    def start(self, start_ns: int) -> None:
        """Begin the first iteration at ``start_ns`` of the monotonic clock (plus each job's offset)."""
        for number, worker in enumerate(self.workers):
            worker.tell({"start_ns": start_ns, "wait_from_ns": wait_from_ns(start_ns, number)})

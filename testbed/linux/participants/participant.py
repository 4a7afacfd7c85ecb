"""What runs in a host on behalf of a job: a replay of a trace, or a real program."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, NoReturn

from testbed.core.runs.plan import JobPlan
from testbed.linux.participants.child import Child
from testbed.transports import Connection


class Participant(ABC):
    """One rank of one job, a process; ``flows`` are those that it sends, once connected."""

    _child: Child

    def __init__(self, job: JobPlan, rank: int) -> None:
        self.job, self.rank, self.host = job.job, rank, job.hosts[rank]
        program = f" ({job.trace})" if job.program else ""
        self.what = f"worker {rank} of job {job.job}{program} on host {self.host}"  # in messages
        self.flows: list[Connection] = []
        self.counters: int | None = None  # a file in memory where a transport keeps what the sampler reads

    @abstractmethod
    def connect(self, at_ns: int) -> None: ...
    @abstractmethod
    def start(self, at_ns: int, wait_from_ns: int, offset_ns: int | None = None) -> None:
        """``offset_ns``: replaces the job's start offset, for a job that had to wait for GPUs."""

    @abstractmethod
    def grant(self) -> None:
        """It may communicate, which it has asked for."""

    def fileno(self) -> int:
        return self._child.fileno()

    def lines(self) -> list[Any]:
        """The complete lines that it has written; waits for some. Raises `TestbedError` if the process has ended."""
        return self._child.lines()

    def was_killed(self) -> bool:
        return self._child.was_killed()

    def died(self) -> NoReturn:
        self._child.died()

    def kill(self) -> None:
        self._child.kill()

    def close(self) -> None:
        self._child.close()

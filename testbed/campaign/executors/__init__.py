"""Executors of tasks, one file each: processes here and on machines reached by ssh (`local`), Dask, Slurm; or this process."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from typing import Protocol

from testbed.backends import Backend
from testbed.campaign.tasks import Failed, Outcome, Task, carry_out
from testbed.core.errors import TestbedError
from testbed.core.runs.events import Said
from testbed.core.runs.plan import Plan

Observer = Callable[[Plan, Said], None]


class Executor(Protocol):
    """Runs one task at a time."""

    def backend_for(self, on: str) -> str | None:
        """The backend that it uses for a run ``on`` (as in --on, perhaps several); None: it does not take the run."""
        ...

    def submit(self, task: Task) -> Future[Outcome]:
        """Begin with a task."""
        ...


class Here:
    """An executor in this process, on a given backend; ``observe`` is called with every event of every run."""

    def __init__(self, backend: Backend, observe: Observer) -> None:
        self.backend, self.observe = backend, observe

    def backend_for(self, on: str) -> str | None:
        return on

    def submit(self, task: Task) -> Future[Outcome]:
        """Ends when the task has."""
        done: Future[Outcome] = Future()
        done.set_result(carry_out(task, self.backend, partial(self.observe, task.plan)))
        return done


def killed() -> Failed:
    """The outcome of a task whose process is gone."""
    return Failed(TestbedError("its process was killed (out of memory?)"))

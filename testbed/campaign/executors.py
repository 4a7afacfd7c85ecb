"""Who carries tasks out: this process, one after the other, or processes of their own, on this machine and on others."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from functools import partial
from typing import Any, Protocol

from core.errors import TestbedError
from core.runs.plan import Plan
from testbed.campaign.tasks import Failed, Outcome, Task, carry_out
from testbed.spec import place as where
from testbed.substrates import Substrate
from testbed.substrates.host import end_with

Observer = Callable[[Plan, dict[str, Any]], None]


class Executor(Protocol):
    """Carries out one task at a time."""

    def place(self, on: str) -> str | None:
        """Where it does what is to run ``on`` (as in --on, perhaps several places); None: it does not."""
        ...

    def submit(self, task: Task) -> Future[Outcome]:
        """Begin with a task."""
        ...


class Here:
    """In this process, on a substrate that is at hand; ``observe`` is told of every event of every run."""

    def __init__(self, substrate: Substrate, observe: Observer) -> None:
        self.substrate, self.observe = substrate, observe

    def place(self, on: str) -> str | None:
        return on

    def submit(self, task: Task) -> Future[Outcome]:
        """Ends when the task has."""
        done: Future[Outcome] = Future()
        done.set_result(carry_out(task, self.substrate, partial(self.observe, task.plan)))
        return done


class Lane:
    """In a process of its own, which ends with this one whatever happens to it; ``machine`` is another one, None this one."""

    def __init__(self, machine: str | None) -> None:
        self.machine = machine
        self.pool = _process()

    def place(self, on: str) -> str | None:
        places = where.places(on)
        if self.machine is not None:
            return self.machine if self.machine in places else None
        return None if where.is_remote(places[0]) else places[0]

    def submit(self, task: Task) -> Future[Outcome]:
        try:
            return self.pool.submit(_carry_out_or_end, task)
        except BrokenProcessPool:  # its process was killed, and the run before this one has failed
            self.pool = _process()
            return self.pool.submit(_carry_out_or_end, task)


@contextlib.contextmanager
def lanes(machines: Mapping[str, object], parallel: int) -> Iterator[list[Lane]]:
    """One for each other machine among the places ``machines``, and ``parallel`` ones here if some runs are here."""
    others = [place for place in machines if where.is_remote(place)]
    here = [None] * (parallel if len(others) < len(machines) else 0)
    made = [Lane(machine) for machine in [*here, *others]]
    try:
        yield made
    except BaseException:
        for lane in made:
            lane.pool.shutdown(wait=False, cancel_futures=True)
        for process in multiprocessing.active_children():
            process.terminate()
        raise
    for lane in made:
        lane.pool.shutdown()


def killed() -> Failed:
    """What came of a task whose process is gone."""
    return Failed(TestbedError("its process was killed (out of memory?)"))


def _process() -> ProcessPoolExecutor:
    return ProcessPoolExecutor(1, multiprocessing.get_context("spawn"), initializer=_begin)


def _begin() -> None:
    """In each process: end with the one that started it, leaving nothing."""
    end_with(signal.SIGTERM)
    signal.signal(signal.SIGTERM, _end)


def _end(_number: int, _frame: Any) -> None:
    raise KeyboardInterrupt("the sweep was ended")


def _carry_out_or_end(task: Task) -> Outcome:
    """As `carry_out`, in a process of a pool."""
    try:
        return carry_out(task)
    except KeyboardInterrupt:
        os._exit(1)  # all is cleaned up by now; the pool would take this for a result and wait for more

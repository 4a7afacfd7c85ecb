"""Processes of their own: as many as wanted on this machine, and one for each that is reached by ssh."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from typing import Any

from core.children import end_with
from testbed.campaign.tasks import Outcome, Task, carry_out
from testbed.spec import place as where


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

    def end(self) -> None:
        """End what it does, and take tasks again."""
        self.pool.shutdown(wait=False, cancel_futures=True)
        for process in multiprocessing.active_children():
            process.terminate()
        self.pool = _process()


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


def _process() -> ProcessPoolExecutor:
    return ProcessPoolExecutor(1, multiprocessing.get_context("spawn"), initializer=_begin)


def _begin() -> None:
    """In each process: end with the one that started it, leaving nothing."""
    end_with(signal.SIGTERM)


def _end(_number: int, _frame: Any) -> None:
    raise KeyboardInterrupt("the sweep was ended")


def _carry_out_or_end(task: Task) -> Outcome:
    """As `carry_out`, in a process of a pool. Only a run has anything to clean up: idle, the process just ends."""
    signal.signal(signal.SIGTERM, _end)
    try:
        return carry_out(task)
    except KeyboardInterrupt:
        os._exit(1)  # all is cleaned up by now; the pool would take this for a result and wait for more
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)

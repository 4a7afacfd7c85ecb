"""Child processes that run tasks: several on this machine, and one for each machine that is reached by ssh.

Tasks and their outcomes travel through a pipe that only the process and its parent have. There is no port, file or named
semaphore that could be left behind, or used by others.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection
from typing import Any

from testbed.campaign.tasks import Outcome, Task, carry_out
from testbed.core import interruption
from testbed.core.children import end_with
from testbed.spec import backend_names


class Carrier:
    """A process that runs one task after the other. It ends with this one, even if this one is killed."""

    def __init__(self) -> None:
        context = multiprocessing.get_context("spawn")
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(theirs,), daemon=True)
        with interruption.deferred():
            resource_tracker.ensure_running()  # its start would let Ctrl-C through to the process that is started next
            with _without_ctrl_c():
                self._process.start()
        theirs.close()

    def ask(self, task: Task) -> Outcome:
        """Run a task and return its outcome; raises `BrokenProcessPool` if the process is gone."""
        try:
            self._pipe.send(task)
            outcome: Outcome | Exception = self._pipe.recv()
        except (EOFError, OSError):
            raise BrokenProcessPool("a process that carries out runs is gone") from None
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    def is_alive(self) -> bool:
        return self._process.is_alive()

    def terminate(self) -> None:
        """Ask the process to end its task."""
        self._process.terminate()

    def close(self) -> None:
        """Wait until the process has ended, which it does when idle."""
        self._pipe.close()
        self._process.join()


class Lane:
    """An executor of one run at a time, in a child process.

    ``machine``: the backend on another machine; None: this machine.
    """

    def __init__(self, machine: str | None) -> None:
        self.machine = machine
        self.carrier = Carrier()
        self.pool = ThreadPoolExecutor(1, thread_name_prefix="lane")

    def backend_for(self, on: str) -> str | None:
        backends = backend_names.parse(on)
        if self.machine is not None:
            return self.machine if self.machine in backends else None
        return None if backend_names.is_remote(backends[0]) else backends[0]

    def submit(self, task: Task) -> Future[Outcome]:
        if not self.carrier.is_alive():  # it was killed, and the run before this one has failed
            self.carrier.close()
            self.carrier = Carrier()
        return self.pool.submit(self.carrier.ask, task)

    def end(self) -> None:
        """End the current task, and accept tasks again."""
        self.carrier.terminate()
        self.carrier.close()
        self.carrier = Carrier()

    def terminate(self) -> None:
        """End the current task, if any, and accept no more."""
        self.pool.shutdown(wait=False, cancel_futures=True)
        self.carrier.terminate()

    def close(self) -> None:
        """Wait for its end."""
        self.pool.shutdown()
        self.carrier.close()


@contextlib.contextmanager
def lanes(machines: Mapping[str, object], parallel: int) -> Iterator[list[Lane]]:
    """Open a lane for each other machine among the backends ``machines``, and ``parallel`` lanes here if some runs are
    here."""
    others = [backend for backend in machines if backend_names.is_remote(backend)]
    here = [None] * (parallel if len(others) < len(machines) else 0)
    made: list[Lane] = []
    try:
        made += [Lane(machine) for machine in [*here, *others]]
        yield made
    except BaseException:
        for lane in made:
            lane.terminate()
        raise
    finally:
        for lane in made:
            lane.close()


@contextlib.contextmanager
def _without_ctrl_c() -> Iterator[None]:
    """A process that is started meanwhile ignores Ctrl-C: this process ends it."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _serve(pipe: Connection) -> None:
    """In the process: until the pipe is closed."""
    end_with(signal.SIGTERM)
    for number in (signal.SIGINT, signal.SIGHUP):  # of a terminal; the parent has them, too
        signal.signal(number, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    try:
        with contextlib.suppress(EOFError, OSError):
            while True:
                pipe.send(_outcome(pipe.recv()))
    except KeyboardInterrupt:
        os._exit(1)  # all is cleaned up by now


def _end(_number: int, _frame: Any) -> None:
    raise KeyboardInterrupt("the sweep was ended")


def _outcome(task: Task) -> Outcome | Exception:
    """As `carry_out`. Only a run has anything to clean up when the process is asked to end: idle, it just ends."""
    try:
        signal.signal(signal.SIGTERM, _end)
        return carry_out(task)
    except Exception as error:
        return error
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)

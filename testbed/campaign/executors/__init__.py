"""Who carries tasks out, one file each: processes here and on machines reached by ssh (`local`), Dask, Slurm; or this process."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from typing import Protocol

from core.errors import RequestError, TestbedError
from core.runs.plan import Plan
from core.text import quoted
from testbed.campaign.tasks import Failed, Outcome, Task, carry_out
from testbed.spec import place as where
from testbed.substrates import Substrate
from testbed.substrates.progress import Event

KINDS = ("local", "dask", "slurm")
Observer = Callable[[Plan, Event], None]


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


def killed() -> Failed:
    """What came of a task whose process is gone."""
    return Failed(TestbedError("its process was killed (out of memory?)"))


def chosen(
    name: str, machines: Mapping[str, object], parallel: int, out: Path
) -> AbstractContextManager[Sequence[Executor]]:
    """Those of ``--executor`` (`check`), for runs at the places ``machines`` whose results go below ``out``."""
    kind, _, rest = name.partition(":")
    if kind == "local":
        from testbed.campaign.executors import local  # noqa: PLC0415 (each knows this module)

        return local.lanes(machines, parallel)
    if kind == "dask":
        from testbed.campaign.executors import dask  # noqa: PLC0415

        return dask.lanes(rest or None, parallel)
    from testbed.campaign.executors import slurm  # noqa: PLC0415

    return slurm.lanes(rest or None, parallel, out)


def check(name: str, machines: Mapping[str, object]) -> None:
    """Raises `RequestError` unless ``--executor`` is one of ours, and takes what is to run."""
    kind, colon, rest = name.partition(":")
    if kind not in KINDS or (colon and (kind == "local" or not rest)):
        raise RequestError(f"--executor {quoted(name)}: there are local, dask[:ADDRESS] and slurm[:PARTITION]")
    if kind == "dask" and colon and not re.fullmatch(r"\w+://\S+:\d+", rest):
        raise RequestError(f"--executor {quoted(name)}: an address is tcp://HOST:PORT or tls://HOST:PORT")
    if kind != "local" and (real := [place for place in machines if where.in_real_time(place)]):
        raise RequestError(
            f"--executor {quoted(name)} is for runs under virtual time, and these are on {', '.join(real)}: on a real clock whoever shares a "
            "machine disturbs. Use --on uml, or other machines by --on ssh:HOST."
        )

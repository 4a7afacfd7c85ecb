"""Execute one run, from its plan to its files: `carry_out`, for every executor.

Nothing is written to disk here. A task can be sent to another process or machine, which returns its outcome.
"""

from __future__ import annotations

import io
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import msgspec

from testbed import backends
from testbed.backends import Backend
from testbed.backends.progress import patience
from testbed.campaign.provenance import provenance
from testbed.core.errors import TestbedError
from testbed.core.runs import documents, rundir
from testbed.core.runs.events import Repeated, Said
from testbed.core.runs.load import digest
from testbed.core.runs.manifest import Asked, Attempt, Manifest, Provenance, Recorded, Told, UserModeLinux
from testbed.core.runs.plan import Plan
from testbed.core.runs.verdict import Row, Verdict, Word
from testbed.core.text import decimal
from testbed.linux.sampling import disturbances


@dataclass(frozen=True)
class Task:
    """One run to execute."""

    plan: Plan
    backend: str  # a single one, as in --on
    wall_limit_s: float | None = None
    retries: int | None = None  # how often it is repeated while it is invalid; None: `default_retries`
    capacity_bps: float | None = None  # of the unshaped path, if another run of the experiment measured it
    command: tuple[str, ...] = ()  # the command line
    asked: Asked | None = None  # the experiment that it is part of
    kernel: UserModeLinux | None = None  # the built kernel to use; None: the newest


@dataclass(frozen=True)
class Completed:
    """A run, judged: the files of its run directory."""

    files: dict[str, bytes]
    verdict: Word
    capacity_bps: float | None


@dataclass(frozen=True)
class Failed:
    """The reason why there is no run: the class of the ``error`` names the cause (`testbed.core.errors`)."""

    error: TestbedError


Outcome = Completed | Failed
Hear = Callable[[Said], None]


def unheard(event: Said) -> None:
    """Ignore an event."""


def carry_out(task: Task, backend: Backend | None = None, hear: Hear = unheard) -> Outcome:
    """Run a task's plan and judge it. An invalid run is repeated at most ``task.retries`` times: the last attempt counts.

    ``backend``: the one that the task names, if it is open already. ``hear`` is called with every event of the run, and with
    `Repeated`.
    """
    try:
        return _carried_out(task, backend or backends.find(task.backend, [task.plan], prefer=task.kernel), hear)
    except TestbedError as error:
        return Failed(error)


def default_retries(backend: Backend) -> int:
    """Return 1 on a real clock, where a repetition may succeed; else 0, because the result would be the same."""
    return 1 if backend.clock == "real" else 0


def _carried_out(task: Task, backend: Backend, hear: Hear) -> Completed:
    most = default_retries(backend) if task.retries is None else task.retries
    attempts: list[Attempt] = []
    while True:
        begun = time.time()
        archive = backend.run(task.plan, hear, patience(task.plan, task.wall_limit_s))
        made = provenance(backend, task.plan, task.command, begun, task.asked)
        run = _judged(task.plan, rundir.unpack(archive), made, task.capacity_bps)
        attempts.append(
            Attempt(made.started, made.wall_s, run.verdict.verdict, tuple(map(_describe_row, run.verdict.invalid)))
        )
        if run.verdict.verdict != "invalid" or len(attempts) > most:
            return Completed(run.files(attempts), run.verdict.verdict, run.manifest.measured.capacity_bps)
        hear(Repeated(run.verdict.verdict, attempts[-1].because))


@dataclass(frozen=True)
class _Judged:
    """A run with provenance and verdict."""

    tables: dict[str, bytes]
    manifest: Manifest
    verdict: Verdict

    def files(self, attempts: Sequence[Attempt]) -> dict[str, bytes]:
        """Content of the run directory, by file name."""
        manifest = msgspec.structs.replace(self.manifest, attempts=tuple(attempts))
        added = {"manifest.json": documents.encode(manifest), "verdict.json": documents.encode(self.verdict)}
        return {**self.tables, **added}


def _describe_row(row: Row) -> str:
    return f"{row.id} {row.name}: {'–' if row.value is None else decimal(row.value)}"


def _judged(plan: Plan, files: dict[str, bytes], made: Provenance, capacity_bps: float | None) -> _Judged:
    """A run's files, judged; ``capacity_bps`` is the unshaped path's if this run did not measure it."""
    import pandas as pd  # noqa: PLC0415 (the first run begins half a second earlier without)

    from testbed.campaign.verdict import Case, judge  # noqa: PLC0415
    from testbed.core.runs import disturbed  # noqa: PLC0415

    reported = msgspec.json.decode(files.pop("manifest.json"), type=Told)
    measured = msgspec.structs.replace(reported.measured, capacity_bps=reported.measured.capacity_bps or capacity_bps)
    reported = msgspec.structs.replace(
        reported, plan=plan, measured=measured
    )  # as requested: inside the backend, paths have other names
    read = {name: pd.read_csv(io.BytesIO(files[f"{name}.csv"])) for name in ("iterations", "links", "flows")}
    recorded, noted = None, None
    tables = digest(files)
    if disturbances.TABLE in files:
        recorded = msgspec.json.decode(files.pop(disturbances.ACCOUNT), type=Recorded)
        noted = pd.read_csv(io.BytesIO(files[disturbances.TABLE]))
        files[disturbances.DISTURBED_ITERATIONS] = (
            disturbed.listed(read["iterations"], noted).to_csv(index=False).encode()
        )
    manifest = Manifest.assemble(reported, made, tables, recorded)
    messages = pd.read_csv(io.BytesIO(files["messages.csv"])) if "messages.csv" in files else None
    lives = pd.read_csv(io.BytesIO(files["jobs.csv"])) if "jobs.csv" in files else None
    nics = pd.read_csv(io.BytesIO(files["nics.csv"])) if "nics.csv" in files else None
    case = Case(manifest, **read, disturbances=noted, messages=messages, lives=lives, nics=nics)
    return _Judged(files, manifest, judge(case))

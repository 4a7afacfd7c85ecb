"""A run's tables, from the records of its workers."""

from __future__ import annotations

import ctypes
import io
import os
import tarfile
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from testbed.core.errors import TestbedError
from testbed.core.runs import rows
from testbed.core.runs.plan import Plan
from testbed.linux.loading.bpfsys import libc
from testbed.linux.participants.workers import Record


def private_folder() -> Path:
    """An empty folder in memory that ends with this process's mount namespace."""
    folder = Path("/dev/shm")
    if libc().mount(b"mltcp", os.fsencode(folder), b"tmpfs", 0, None):
        raise OSError(ctypes.get_errno(), "mount of tmpfs", str(folder))
    results = folder / "run"
    results.mkdir()
    return results


def complete(plan: Plan, records: list[Record]) -> list[Record]:
    """Iterations that every worker of the job has ended, by job, iteration and rank."""
    ended = Counter((record.job, record.iteration) for record in records)
    workers = {job.job: len(job.hosts) for job in plan.jobs}
    whole = [record for record in records if ended[record.job, record.iteration] == workers[record.job]]
    if idle := set() if plan.lives else set(workers) - {record.job for record in whole}:
        raise TestbedError(f"job {min(idle)} left before its first iteration ended. Give it a later `leave`.")
    return sorted(whole, key=lambda record: (record.job, record.iteration, record.rank))


def write_operations(path: Path, records: list[Record]) -> None:
    """Write ``operations.csv`` (docs/reference/file-formats.md)."""
    table_rows = (
        rows.Operation(r.job, r.rank, r.iteration, name, start / 1e9, end / 1e9)
        for r in records
        for name, start, end in r.operations
    )
    rows.write(path, rows.Operation, table_rows, decimals=9)


def write_messages(path: Path, records: list[Record]) -> None:
    """Write ``messages.csv`` (docs/reference/file-formats.md)."""
    table_rows = (
        rows.Messages(r.job, r.rank, r.iteration, *row[:-5], *(ns / 1e9 for ns in row[-5:-3]), *row[-3:])
        for r in records
        for row in r.ended()
    )
    rows.write(path, rows.Messages, table_rows, decimals=9)


def write_training(path: Path, records: list[Record]) -> None:
    """Write ``training.csv`` (docs/reference/file-formats.md)."""
    table_rows = (
        rows.Training(r.job, r.iteration, r.end / 1e9, r.accuracy, r.replica_divergence)
        for r in records
        if r.replica_divergence is not None
    )
    rows.write(path, rows.Training, table_rows, decimals=9)


def write_iterations(path: Path, plan: Plan, records: list[Record]) -> None:
    """Write ``iterations.csv`` (docs/reference/file-formats.md)."""
    table_rows = (
        rows.Iteration(
            system=plan.system.label, seed=plan.seed, job=r.job, worker=r.rank, iteration=r.iteration,
            start_s=r.start / 1e9, comm_start_s=r.comm_start / 1e9, end_s=r.end / 1e9, bytes=r.bytes, max_start_delay_s=r.late / 1e9,
        )
        for r in records
    )  # fmt: skip
    rows.write(path, rows.Iteration, table_rows, decimals=9)


def write_jobs(path: Path, lives: Iterable[rows.Job]) -> None:
    """Write ``jobs.csv`` (docs/reference/file-formats.md)."""
    rows.write(path, rows.Job, lives, decimals=9)


def write_background(path: Path, flows: Iterable[rows.BackgroundFlow]) -> None:
    """Write ``background.csv`` (docs/reference/file-formats.md)."""
    rows.write(path, rows.BackgroundFlow, flows, decimals=9)


def archive(folder: Path) -> bytes:
    """The folder's files as a tar archive."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for path in sorted(folder.iterdir()):
            tar.add(path, arcname=path.name)
    return buffer.getvalue()

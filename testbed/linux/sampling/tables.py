"""A run's tables, from what its workers told."""

from __future__ import annotations

import csv
import io
import subprocess
import tarfile
from collections import Counter
from pathlib import Path

from core.errors import TestbedError
from core.runs.plan import Plan
from testbed.linux.participants.workers import Record


def private_folder() -> Path:
    """An empty folder in memory that ends with this process's mount namespace."""
    folder = Path("/dev/shm")
    subprocess.run(["mount", "-t", "tmpfs", "mltcp", str(folder)], check=True, capture_output=True)
    results = folder / "run"
    results.mkdir()
    return results


def complete(plan: Plan, records: list[Record]) -> list[Record]:
    """Iterations that every worker of the job has ended, by job, iteration and rank."""
    ended = Counter((record.job, record.iteration) for record in records)
    workers = {job.job: len(job.hosts) for job in plan.jobs}
    whole = [record for record in records if ended[record.job, record.iteration] == workers[record.job]]
    if idle := set(workers) - {record.job for record in whole}:
        raise TestbedError(f"job {min(idle)} left before it had ended a single iteration; let it stay longer (leave).")
    return sorted(whole, key=lambda record: (record.job, record.iteration, record.rank))


def write_operations(path: Path, records: list[Record]) -> None:
    """``operations.csv`` (docs/results.md)."""
    with path.open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["job", "worker", "iteration", "operation", "start_s", "end_s"])
        for r in records:
            for name, start, end in r.operations:
                writer.writerow([r.job, r.rank, r.iteration, name, f"{start / 1e9:.9f}", f"{end / 1e9:.9f}"])


def write_iterations(path: Path, plan: Plan, records: list[Record]) -> None:
    """``iterations.csv`` (docs/results.md)."""
    with path.open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(
            ["system", "seed", "job", "worker", "iteration", "start_s", "comm_start_s", "end_s", "bytes", "late_s"]
        )
        for r in records:
            times = (f"{ns / 1e9:.9f}" for ns in (r.start, r.comm_start, r.end))
            writer.writerow(
                [plan.system.label, plan.seed, r.job, r.rank, r.iteration, *times, r.bytes, f"{r.late / 1e9:.9f}"]
            )


def archive(folder: Path) -> bytes:
    """The folder's files as a tar archive."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for path in sorted(folder.iterdir()):
            tar.add(path, arcname=path.name)
    return buffer.getvalue()

"""Alibaba PAI 2020: ``pai_task_table.csv`` with its header line (github.com/alibaba/clusterdata, cluster-trace-gpu-v2020).

A job combines all of its tasks: ``plan_gpu`` is in per cent of a GPU for each of ``inst_num`` instances. Fractions of a
GPU are rounded up. Times are in seconds.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

from testbed.traces import rows
from testbed.traces.job_lists import Logged
from testbed.traces.rows import MOST_GPUS, Omissions, RowError

TITLE = "the Alibaba PAI task table (CSV: job_name, inst_num, start_time, end_time, plan_gpu)"
COLUMNS = ("job_name", "inst_num", "start_time", "end_time", "plan_gpu")


@dataclass
class _Job:
    """The tasks of a job so far."""

    where: str
    start_s: float = math.inf
    end_s: float = 0.0
    gpus: float = 0.0


def recognises(head: str, path: Path) -> bool:
    """Recognise the log by a column that only this format has."""
    return "plan_gpu" in head.partition("\n")[0]


def read(text: str, path: Path, omitted: Omissions) -> list[Logged]:
    """Jobs with a GPU that have started and ended."""
    jobs: dict[str, _Job] = {}
    for where, row in rows.table(text, COLUMNS, "A PAI task table"):
        try:
            if isinstance(row, RowError):
                raise row
            start_s, end_s, gpus = _task(row)
            job = jobs.setdefault(rows.cell(row, "job_name"), _Job(where))
        except RowError as error:
            omitted.add(where, error)
            continue
        job.start_s, job.end_s, job.gpus = min(job.start_s, start_s), max(job.end_s, end_s), job.gpus + gpus
    found = []
    for job in jobs.values():
        gpus = math.ceil(job.gpus)
        if gpus > MOST_GPUS:
            omitted.add(job.where, RowError(f"its tasks ask for more than {MOST_GPUS} GPUs"))
        elif not gpus or job.end_s == job.start_s:
            omitted.add(job.where, RowError("it took no time" if gpus else "no GPU"))
        else:
            found.append(Logged(job.start_s, gpus, job.end_s - job.start_s))
    return found


def _task(row: dict[str, str]) -> tuple[float, float, float]:
    """Start, end and GPUs."""
    share = rows.number(rows.cell(row, "plan_gpu"), "plan_gpu")
    gpus = rows.number(rows.cell(row, "inst_num"), "inst_num") * share / 100
    start_s = rows.number(rows.cell(row, "start_time"), "start_time")
    end_s = rows.number(rows.cell(row, "end_time"), "end_time")
    if end_s < start_s:
        raise RowError("it ends before it starts", f"{row['start_time']} to {row['end_time']}")
    return start_s, end_s, gpus

"""Alibaba PAI 2020: ``pai_task_table.csv`` with its header line (github.com/alibaba/clusterdata, cluster-trace-gpu-v2020).

A job is its tasks together: ``plan_gpu`` is in per cent of a GPU for each of ``inst_num`` instances; a job that asks for parts of
GPUs is rounded up to whole ones.
"""

from __future__ import annotations

import csv
import io
import math
from pathlib import Path

from core.errors import RequestError
from workloads.joblists import Logged

TITLE = "the Alibaba PAI task table (CSV: job_name, inst_num, start_time, end_time, plan_gpu)"
COLUMNS = ("job_name", "inst_num", "start_time", "end_time", "plan_gpu")


def recognises(head: str, path: Path) -> bool:
    """By a column that only it has."""
    return "plan_gpu" in head.partition("\n")[0]


def read(text: str, path: Path) -> list[Logged]:
    """Jobs with a GPU that have started and ended."""
    table = csv.DictReader(io.StringIO(text))
    if missing := [one for one in COLUMNS if one not in (table.fieldnames or ())]:
        raise RequestError(f"the column {missing[0]} is missing; a PAI task table has {', '.join(COLUMNS)}")
    jobs: dict[str, list[tuple[float, float, float]]] = {}
    for row in table:
        if not all(row[one] for one in COLUMNS):
            continue  # a task without a GPU, or that never ran
        try:
            start, end = float(row["start_time"]), float(row["end_time"])
            share = float(row["inst_num"]) * float(row["plan_gpu"]) / 100
        except ValueError as error:
            raise RequestError(f"line {table.line_num}: {error}") from error
        if not (share >= 0 and 0 <= start <= end < math.inf):
            raise RequestError(f"line {table.line_num}: {share:g} GPUs from {start:g} s to {end:g} s")
        jobs.setdefault(row["job_name"], []).append((start, end, share))
    return [
        Logged(start, gpus, end - start)
        for tasks in jobs.values()
        if (gpus := math.ceil(sum(share for _, _, share in tasks)))
        and (end := max(end for _, end, _ in tasks)) > (start := min(start for start, _, _ in tasks))
    ]

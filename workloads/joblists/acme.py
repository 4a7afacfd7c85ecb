"""Acme of the Shanghai AI Laboratory: ``trace_seren.csv`` and ``trace_kalos.csv`` (github.com/InternLM/AcmeTrace).

A job lasts from ``start_time`` to ``end_time``. The column ``duration`` is not read: that of Kalos begins when a job is submitted.
Times name their zone; those without one are read as China Standard Time, UTC+8.
"""

from __future__ import annotations

from datetime import timedelta, timezone
from pathlib import Path

from testbed.traces import rows
from testbed.traces.job_lists import Logged, logged
from testbed.traces.rows import Omissions, RowError

TITLE = "the Acme job table (CSV: gpu_num, submit_time, start_time, end_time, gpu_time)"
COLUMNS = ("gpu_num", "submit_time", "start_time", "end_time")
ZONE = timezone(timedelta(hours=8))


def recognises(head: str, path: Path) -> bool:
    """Recognise the log by two columns that only this format combines."""
    names = head.partition("\n")[0]
    return "gpu_num" in names and "gpu_time" in names


def read(text: str, path: Path, omitted: Omissions) -> list[Logged]:
    """Jobs with a GPU that have started and ended."""
    return logged(rows.table(text, COLUMNS, "An Acme job table"), _job, omitted)


def _job(row: dict[str, str]) -> Logged:
    gpus = rows.count(rows.cell(row, "gpu_num"), "gpu_num")
    if not gpus:
        raise RowError("no GPU")
    submit_s, start_s, end_s = (rows.time_s(rows.cell(row, name), name, ZONE) for name in COLUMNS[1:])
    if end_s < start_s:
        raise RowError("it ends before it starts", f"{row['start_time']} to {row['end_time']}")
    if end_s == start_s:
        raise RowError("it took no time")
    return Logged(submit_s, gpus, end_s - start_s)

"""SenseTime Helios: ``cluster_log.csv`` (github.com/S-Lab-System-Group/HeliosData).

Its times carry no zone. They are read as China Standard Time, UTC+8 all year.
"""

from __future__ import annotations

from datetime import timedelta, timezone
from pathlib import Path

from testbed.traces import rows
from testbed.traces.job_lists import Logged, logged
from testbed.traces.rows import Omissions, RowError

TITLE = "the Helios job table (CSV: gpu_num, submit_time, duration)"
COLUMNS = ("gpu_num", "submit_time", "duration")
ZONE = timezone(timedelta(hours=8))


def recognises(head: str, path: Path) -> bool:
    """Recognise the log by a column that only this format has."""
    return "gpu_num" in head.partition("\n")[0]


def read(text: str, path: Path, omitted: Omissions) -> list[Logged]:
    """Jobs with a GPU and a duration."""
    return logged(rows.table(text, COLUMNS, "A Helios job table"), _job, omitted)


def _job(row: dict[str, str]) -> Logged:
    gpus = rows.count(rows.cell(row, "gpu_num"), "gpu_num")
    if not gpus:
        raise RowError("no GPU")
    took_s = rows.number(rows.cell(row, "duration"), "duration")
    if not took_s:
        raise RowError("it took no time")
    return Logged(rows.time_s(rows.cell(row, "submit_time"), "submit_time", ZONE), gpus, took_s)

"""SenseTime Helios: ``cluster_log.csv`` (github.com/S-Lab-System-Group/HeliosData)."""

from __future__ import annotations

import csv
import io
from datetime import datetime
from pathlib import Path

from core.errors import RequestError
from workloads.joblists import Logged

TITLE = "the Helios job table (CSV: gpu_num, submit_time, duration)"
COLUMNS = ("gpu_num", "submit_time", "duration")


def recognises(head: str, path: Path) -> bool:
    """By a column that only it has."""
    return "gpu_num" in head.partition("\n")[0]


def read(text: str, path: Path) -> list[Logged]:
    """Jobs with a GPU and a duration."""
    table = csv.DictReader(io.StringIO(text))
    if missing := [one for one in COLUMNS if one not in (table.fieldnames or ())]:
        raise RequestError(f"the column {missing[0]} is missing; a Helios job table has {', '.join(COLUMNS)}")
    found = []
    for row in table:
        try:
            gpus, took = int(row["gpu_num"]), float(row["duration"])
            arrives = datetime.fromisoformat(row["submit_time"]).timestamp()
        except (TypeError, ValueError) as error:
            raise RequestError(f"line {table.line_num}: {error}") from error
        if gpus < 0 or took < 0:
            raise RequestError(f"line {table.line_num}: a job with {gpus} GPUs for {took:g} s")
        if gpus and took:
            found.append(Logged(arrives, gpus, took))
    return found

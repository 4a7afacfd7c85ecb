"""Microsoft Philly: ``cluster_job_log``, a JSON list of jobs with their attempts (github.com/msr-fiddle/philly-traces).

A job's GPUs are those of its last attempt, its time that of all of them.
"""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Any

import msgspec

from core.errors import RequestError
from workloads.joblists import Logged

TITLE = "the Philly job log (JSON)"
_NEVER = (None, "None", "")


class _Detail(msgspec.Struct):
    gpus: tuple[str, ...] = ()


class _Attempt(msgspec.Struct):
    start_time: str | None = None
    end_time: str | None = None
    detail: tuple[_Detail, ...] = ()


class _Job(msgspec.Struct):
    jobid: str
    submitted_time: str | None
    attempts: tuple[_Attempt, ...]


def recognises(head: str, path: Path) -> bool:
    """A JSON list whose objects have ``attempts``."""
    return head.lstrip().startswith("[") and '"attempts"' in head


def read(text: str, path: Path) -> list[Logged]:
    """Jobs that ran on a GPU."""
    try:
        jobs: list[_Job] = msgspec.json.decode(text, type=list[_Job])
    except (msgspec.DecodeError, RecursionError) as error:
        raise RequestError(f"it is no Philly job log: {error}") from error
    found = []
    for job in jobs:
        took = sum(
            _second(one.end_time, job) - _second(one.start_time, job)
            for one in job.attempts
            if one.start_time not in _NEVER and one.end_time not in _NEVER
        )
        gpus = sum(len(one.gpus) for one in job.attempts[-1].detail) if job.attempts else 0
        if took < 0:
            raise RequestError(f"job {job.jobid} ended before it began")
        if gpus and took and job.submitted_time not in _NEVER:
            found.append(Logged(_second(job.submitted_time, job), gpus, took))
    return found


def _second(text: Any, job: _Job) -> float:
    try:
        return datetime.strptime(text, "%Y-%m-%d %H:%M:%S").timestamp()
    except ValueError as error:
        raise RequestError(f"job {job.jobid}: {text!r} is no time like 2017-10-09 07:10:06") from error

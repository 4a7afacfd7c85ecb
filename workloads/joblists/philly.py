"""Microsoft Philly: ``cluster_job_log``, a JSON list of jobs with their attempts (github.com/msr-fiddle/philly-traces).

A job's GPUs are those of its last attempt, its time that of all of them. Times carry no zone. They are read as US Pacific time, the zone that
the trace's other files name (PDT, PST), by the rule in force since 2007: daylight saving time from the second Sunday of March to the first
Sunday of November. A time in the hour that occurs twice is in its first pass, unless an attempt would then end before it starts.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path
from typing import Any

import msgspec

from testbed.core.errors import RequestError
from testbed.traces import rows
from testbed.traces.job_lists import Logged, logged
from testbed.traces.rows import MOST_GPUS, Omissions, RowError

TITLE = "the Philly job log (JSON)"
_NEVER = (None, "None", "")
_HOUR = timedelta(hours=1)


class _Detail(msgspec.Struct):
    gpus: tuple[Any, ...] = ()


class _Attempt(msgspec.Struct):
    start_time: str | None = None
    end_time: str | None = None
    detail: tuple[_Detail, ...] = ()


class _Job(msgspec.Struct):
    submitted_time: str | None = None
    attempts: tuple[_Attempt, ...] = ()


def recognises(head: str, path: Path) -> bool:
    """A JSON list whose objects have ``attempts``."""
    return head.lstrip("\ufeff \t\r\n").startswith("[") and '"attempts"' in head


def read(text: str, path: Path, omitted: Omissions) -> list[Logged]:
    """Jobs that ran on a GPU."""
    rows.check_commas(text)
    try:
        entries = msgspec.json.decode(text.removeprefix("\ufeff"), type=list[msgspec.Raw])
    except (msgspec.DecodeError, RecursionError) as error:
        raise RequestError(f"it is no Philly job log: {error}") from error
    rows.check_count(len(entries))
    return logged(((f"job {number}", entry) for number, entry in enumerate(entries)), _read, omitted)


def _read(entry: msgspec.Raw) -> Logged:
    try:
        job = msgspec.json.decode(entry, type=_Job)
    except (msgspec.DecodeError, RecursionError) as error:
        raise RowError("it is no job of a Philly log", error) from error
    if not job.attempts:
        raise RowError("no attempt")
    if job.submitted_time in _NEVER:
        raise RowError("no submitted_time")
    gpus = sum(len(one.gpus) for one in job.attempts[-1].detail)
    if not 0 < gpus <= MOST_GPUS:
        raise RowError("no GPU in the last attempt")
    took_s = sum(map(_took_s, job.attempts))
    if not took_s:
        raise RowError("no attempt with a start and an end")
    return Logged(pacific_s(_time(job.submitted_time)), gpus, took_s)


def _took_s(attempt: _Attempt) -> float:
    """How long an attempt took; 0 if its start or end is not known."""
    if attempt.start_time in _NEVER or attempt.end_time in _NEVER:
        return 0.0
    begin_s = pacific_s(_time(attempt.start_time))
    end = _time(attempt.end_time)
    end_s = pacific_s(end)
    if end_s < begin_s:
        end_s = pacific_s(end, second_pass=True)
    if end_s < begin_s:
        raise RowError("an attempt ends before it starts", f"{attempt.start_time} to {attempt.end_time}")
    return end_s - begin_s


def _time(text: str | None) -> datetime:
    try:
        time = datetime.fromisoformat(text or "")
    except ValueError as error:
        raise RowError("it has a time that is not like 2017-10-09 07:10:06", text) from error
    if not 2000 <= time.year < 3000:
        raise RowError("it has a time outside the years 2000 to 2999", text)
    return time


def pacific_s(time: datetime, *, second_pass: bool = False) -> float:
    """Seconds since 1970 of a US Pacific time, for any zone of this machine; a time with a zone keeps its own."""
    if time.tzinfo:
        return time.timestamp()
    begins, ends = _daylight_saving(time.year)
    repeated = ends - _HOUR <= time < ends
    daylight = begins + _HOUR <= time < ends and not (repeated and second_pass)
    return (time + timedelta(hours=7 if daylight else 8)).replace(tzinfo=UTC).timestamp()


@cache
def _daylight_saving(year: int) -> tuple[datetime, datetime]:
    """Return the two local times of a year between which daylight saving time holds."""
    march, november = datetime(year, 3, 8, 2), datetime(year, 11, 1, 2)
    return tuple(day + timedelta(days=(6 - day.weekday()) % 7) for day in (march, november))  # type: ignore[return-value]

"""Slurm: the output of ``sacct --parsable2``, with its header line, or of ``sacct --json``
(slurm.schedmd.com/sacct.html).

A job is a row; each task of a job array is one, too. Parts of a heterogeneous job (``1205+0``, ``1205+1``) are one job
with the GPUs of all. Steps (``1205.batch``) are left out. A job's GPUs are the allocated ``gres/gpu``. Its time is
``Elapsed``, which a change of the clock does not affect. A cancelled job counts for as long as it ran.

``--json`` has its times in seconds since 1970. The other form has local times without their zone: they are read as UTC.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from datetime import UTC
from pathlib import Path
from typing import Any

import msgspec

from testbed.core.errors import RequestError
from testbed.traces import rows
from testbed.traces.job_lists import Logged
from testbed.traces.rows import Omissions, RowError

TITLE = "Slurm's accounting (sacct --parsable2 with its header, or sacct --json)"
COMMAND = "sacct --allusers --allocations --parsable2 --format=JobID,Submit,Start,End,Elapsed,State,AllocTRES"
NO_ZONE = (
    "times of sacct have no zone and are read as UTC. Arrivals before and after a change of the clock are an hour off; "
    "TZ=UTC sacct, or sacct --json, avoids this"
)
_NEVER = ("", "unknown", "none", "n/a", "null")
_UNDER_WAY = ("PENDING", "RUNNING", "SUSPENDED", "CONFIGURING", "COMPLETING", "RESIZING", "STAGE_OUT", "STOPPED")
_ELAPSED = re.compile(r"(?:(\d{1,6})-)?(\d{1,4}):(\d\d):(\d\d(?:\.\d+)?)", re.ASCII)

# One entry: the heterogeneous job that it belongs to ("": none), and its job.
Part = tuple[str, Logged]


class _Resource(msgspec.Struct):
    type: str | None = None
    name: str | None = None
    count: Any = None


class _Resources(msgspec.Struct):
    allocated: tuple[_Resource, ...] = ()


class _Number(msgspec.Struct):
    set: bool = True
    number: Any = 0


class _Times(msgspec.Struct):
    submission: int | float | _Number | None = None
    start: int | float | _Number | None = None
    end: int | float | _Number | None = None
    elapsed: int | float | _Number | None = None


class _State(msgspec.Struct):
    current: str | tuple[str, ...] = ""


class _Heterogeneous(msgspec.Struct):
    job_id: int | _Number | None = None


class _Job(msgspec.Struct):
    time: _Times
    tres: _Resources
    state: _State | str | tuple[str, ...] = ""
    het: _Heterogeneous | None = None


class _Output(msgspec.Struct):
    jobs: list[msgspec.Raw]


def recognises(head: str, path: Path) -> bool:
    """A JSON object with ``jobs``, or a first line with a job's number."""
    text = head.lstrip("\ufeff \t\r\n")
    return (text.startswith("{") and '"jobs"' in text) or "JobID" in text.partition("\n")[0]


def read(text: str, path: Path, omitted: Omissions) -> list[Logged]:
    """Jobs that ran on GPUs."""
    found: list[Logged] = []
    places: dict[str, int] = {}
    as_json = text.lstrip("\ufeff \t\r\n").startswith("{")
    part: Callable[[Any], Part] = _of_json if as_json else lambda row: _of_row(row, omitted)
    for where, entry in _json(text) if as_json else _table(text):
        try:
            if isinstance(entry, RowError):
                raise entry
            whole, job = part(entry)
        except RowError as error:
            omitted.add(where, error)
            continue
        if whole in places:
            first = found[places[whole]]
            gpus, took_s = min(first.gpus + job.gpus, rows.MOST_GPUS), max(first.took_s, job.took_s)
            found[places[whole]] = Logged(min(first.arrival_s, job.arrival_s), gpus, took_s)
            continue
        if whole:
            places[whole] = len(found)
        found.append(job)
    return found


def _json(text: str) -> Iterator[tuple[str, Any]]:
    rows.check_commas(text)
    try:
        jobs = msgspec.json.decode(text.removeprefix("\ufeff"), type=_Output).jobs
    except (msgspec.DecodeError, RecursionError) as error:
        raise RequestError(f"it is not what sacct --json prints: {error}") from error
    rows.check_count(len(jobs))
    return ((f"job {number}", entry) for number, entry in enumerate(jobs))


def _of_json(entry: msgspec.Raw) -> Part:
    try:
        job = msgspec.json.decode(entry, type=_Job)
    except (msgspec.DecodeError, RecursionError) as error:
        raise RowError("it is no job of sacct --json", error) from error
    state = job.state.current if isinstance(job.state, _State) else job.state
    _check_ended(state if isinstance(state, str) else " ".join(state))
    submit_s, start_s, end_s, elapsed_s = (
        _seconds(value) for value in (job.time.submission, job.time.start, job.time.end, job.time.elapsed)
    )
    if not start_s:
        raise RowError("it never started")
    if not end_s:
        raise RowError("it has not ended")
    named = [(one.name or "", one.count) for one in job.tres.allocated if one.type == "gres"]
    gpus = _gpus(named)
    whole = _seconds(job.het.job_id) if job.het is not None else 0
    return str(int(whole)) if whole else "", _job(submit_s, gpus, elapsed_s)


def _seconds(value: float | _Number | None) -> float:
    if isinstance(value, _Number):
        value = value.number if value.set else 0
    return rows.number(0 if value is None else value, "a time or number")


def _table(text: str) -> Iterator[tuple[str, Any]]:
    header = text.removeprefix("\ufeff").partition("\n")[0]
    names = [name.strip() for name in header.split("|")]
    lacks = [
        alternatives[0]
        for alternatives in (("JobID", "JobIDRaw"), ("Submit",), ("Elapsed", "ElapsedRaw"), ("AllocTRES", "ReqTRES"))
        if not any(name in names for name in alternatives)
    ]
    if lacks:
        raise RequestError(
            f"the column {lacks[0]} is missing, or columns are not separated by |. Write the list with {COMMAND}."
        )
    return rows.table(text, ("Submit",), "sacct's output", delimiter="|")


def _of_row(row: dict[str, str], omitted: Omissions) -> Part:
    number = row.get("JobID") or row.get("JobIDRaw", "")
    if "." in number:
        raise RowError("it is a step of a job")
    _check_ended(row.get("State", ""))
    if row.get("Start", "?").lower() in _NEVER:
        raise RowError("it never started")
    if row.get("End", "?").lower() in _NEVER:
        raise RowError("it has not ended")
    took_s = (
        rows.number(row["ElapsedRaw"], "ElapsedRaw") if row.get("ElapsedRaw") else _elapsed_s(row.get("Elapsed", ""))
    )
    entries = (
        entry.partition("=")
        for entry in (row.get("AllocTRES") or row.get("ReqTRES", "")).split(",")
        if entry.startswith("gres/")
    )
    gpus = _gpus([(name.removeprefix("gres/"), count) for name, _, count in entries])
    whole, plus, _ = number.partition("+")
    return whole if plus else "", _job(_submit_s(row, omitted), gpus, took_s)


def _check_ended(state: str) -> None:
    """Raise `RowError` for a job that has not ended. A state may have more words: CANCELLED by 1000."""
    if (first := state.upper().partition(" ")[0]) in _UNDER_WAY:
        raise RowError("it has not ended", first)


def _gpus(resources: list[tuple[str, Any]]) -> int:
    """The GPUs of all types, which Slurm lists in addition to each type's own: gpu, gpu:a100."""
    counts = {name: rows.count(count, "gres/gpu") for name, count in resources if name.partition(":")[0] == "gpu"}
    gpus = counts.get("gpu") or sum(counts.values())
    if not 0 < gpus <= rows.MOST_GPUS:
        raise RowError("no GPU was allocated")
    return gpus


def _job(submit_s: float, gpus: int, took_s: float) -> Logged:
    if not submit_s:
        raise RowError("no time of submission")
    if not took_s:
        raise RowError("it took no time")
    return Logged(submit_s, gpus, took_s)


def _submit_s(row: dict[str, str], omitted: Omissions) -> float:
    text = rows.cell(row, "Submit")
    if text.isdecimal():
        return rows.number(text, "Submit")
    seconds = rows.time_s(text, "Submit", UTC)
    if not re.search(r"(?:Z|[+-]\d\d:?\d\d)$", text):
        omitted.assume(NO_ZONE)
    return seconds


def _elapsed_s(text: str) -> float:
    """[days-]hours:minutes:seconds."""
    found = _ELAPSED.fullmatch(text)
    if found is None:
        raise RowError("Elapsed is not a time like 1-02:03:04", text)
    days, hours, minutes, seconds = found.groups()
    return int(days or 0) * 86400 + int(hours) * 3600 + int(minutes) * 60 + float(seconds)

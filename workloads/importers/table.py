"""CSV with a header: when which collective of how many bytes began.

.. code-block:: text

    step,time_ms,bytes,kind
    0,107.0,8196000,all_reduce
    0,222.4,0,

The time is that since the step began, in ``time_s``, ``time_ms`` or ``time_us``;
``step`` and ``kind`` may be left out. A last row of 0 bytes ends the step.
"""

from __future__ import annotations

import csv
import io
import math
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import get_args

from testbed.core.text import quoted
from testbed.traces.importing import Profile, Request
from testbed.traces.json_stream import Source, brief
from testbed.traces.steps import Exchange, Step
from testbed.traces.trace import Kind, TraceError

TITLE = "CSV with columns time_s (or time_ms, time_us) and bytes"
USES = frozenset({"iteration"})

_UNITS = {"time_s": 1.0, "time_ms": 1e-3, "time_us": 1e-6}
_KINDS: dict[str, Kind] = {kind: kind for kind in get_args(Kind) if kind != "compute"}


def recognises(head: bytes, path: Path) -> bool:
    columns = [column.strip() for column in head.split(b"\n")[0].lower().removeprefix(b"\xef\xbb\xbf").split(b",")]
    return b"bytes" in columns or any(unit.encode() in columns for unit in _UNITS)


def read(path: Path, request: Request) -> Profile:
    rows: defaultdict[str, list[tuple[float, int, Kind]]] = defaultdict(list)
    for step, row in _rows(path):
        rows[step].append(row)
    if not rows:
        raise TraceError(f"{path} has a header and no rows")
    return Profile([_step(path, step, its, request) for step, its in rows.items()], measured_by=f"table {path.name}")


def _step(path: Path, name: str, rows: list[tuple[float, int, Kind]], request: Request) -> Step:
    rows.sort(key=lambda row: row[0])
    *_, (end_s, last_bytes, _) = rows
    if last_bytes == 0:
        rows = rows[:-1]
    elif request.iteration is None:
        raise TraceError(
            f"{path}: when step {quoted(name)} ends is unknown: end it with a row of 0 bytes at that time, or give "
            f"--iteration 222ms"
        )
    if request.iteration is not None:
        end_s = request.iteration / 1e9
    if any(size == 0 for _, size, _ in rows):
        raise TraceError(
            f"{path}: step {quoted(name)} has a row of 0 bytes before its last: only the end may have none"
        )
    return Step(end_s, tuple(Exchange(kind, size, time_s, time_s) for time_s, size, kind in rows))


def _rows(path: Path) -> Iterator[tuple[str, tuple[float, int, Kind]]]:
    """The step's name, the time in seconds, the bytes and the kind of each row."""
    with Source(path) as source:
        table = csv.DictReader(io.TextIOWrapper(io.BufferedReader(source), "utf-8-sig", newline=""))
        try:
            columns = [str(name).strip().lower() for name in table.fieldnames or ()]
            table.fieldnames = columns
            times = [name for name in columns if name in _UNITS]
            if len(times) != 1 or "bytes" not in columns:
                raise TraceError(
                    f"{path}: its first line has to name the columns 'bytes' and one of {', '.join(_UNITS)} "
                    f"(and perhaps 'step' and 'kind'); it is {brief(','.join(columns))}"
                )
            if len(set(columns)) < len(columns):
                raise TraceError(f"{path}: its first line names a column twice: {brief(','.join(columns))}")
            for row in table:
                source.progress()
                where = f"{path}, line {table.line_num}"
                time_s = _number(row[times[0]], times[0], where) * _UNITS[times[0]]
                size = _number(row["bytes"], "bytes", where)
                kind = _KINDS.get((row.get("kind") or "all_reduce").strip())
                if kind is None:
                    raise TraceError(f"{where}: kind {brief(row['kind'])} is none of {', '.join(_KINDS)}")
                if size != int(size):
                    raise TraceError(f"{where}: 'bytes' is {brief(row['bytes'])}, which is not a whole number")
                yield (row.get("step") or "0").strip(), (time_s, int(size), kind)
        except (csv.Error, UnicodeDecodeError) as error:
            raise TraceError(f"{path} is not a CSV file: {error}") from error


def _number(text: str | None, column: str, where: str) -> float:
    try:
        value = float(text or "")
    except ValueError as error:
        raise TraceError(f"{where}: {column!r} is {brief(text)}, which is not a number") from error
    if not math.isfinite(value) or not 0 <= value <= 1e18:
        raise TraceError(f"{where}: {column!r} is {brief(text)}; it has to be at least 0, and within reason")
    return value

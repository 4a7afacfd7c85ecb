"""The testbed's own format: CSV, or TOML with ``[[job]]``, with the same columns. A bad row is an error, since the
table is written for this purpose.

A row has ``gradient_bytes`` and ``compute_s``, or names a ``trace`` with both: one of the library or a file, perhaps
with the device that converts its work into time (``mine.json --device h100``), or a model with its layout (``--model
llama-7b --tp 8 --dp 4 --device h100``). A file is named relative to the table.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from testbed.core import toml
from testbed.core.errors import RequestError
from testbed.core.placing import Request
from testbed.core.text import quoted
from testbed.core.units import Share
from testbed.planning.trace_demand import Demand, demand
from testbed.traces import devices, model_jobs, rows
from testbed.traces import trace as traces
from testbed.traces.job_lists import Replayed
from testbed.traces.rows import Omissions, RowError

TITLE = "our own table (CSV or TOML: job, gpus, iterations, gradient_bytes and compute_s, or trace; arrival_s)"
MOST = 10**15
COUNTS = {"job": (0, 10**9), "gpus": (1, rows.MOST_GPUS), "iterations": (1, 10**12), "gradient_bytes": (0, MOST)}
TIMES = ("compute_s", "arrival_s")
COLUMNS = (*COUNTS, *TIMES)
TRACE = "trace"
OF_TRACE = ("gradient_bytes", "compute_s")  # columns that a trace replaces
ALIASES = {"arrives_s": "arrival_s"}
OPTIONS: dict[str, Callable[[str], Any]] = {
    "--device": str,
    "--peak": devices.Flops.parse,
    "--mfu": lambda text: Share(text).value,
    "--memory": devices.Bandwidth.parse,
}
OVERLAP = (
    "of a trace its computing, then all of its bytes as one ring all-reduce: a trace that does both at once takes less"
)
NAMED = 3  # bad rows that the message quotes


def recognises(head: str, path: Path) -> bool:
    """TOML by its name; CSV by a first line with columns that only ours has."""
    names = head.partition("\n")[0]
    return path.suffix == ".toml" or "gradient_bytes" in names or (TRACE in names and "iterations" in names)


def read(text: str, path: Path, omitted: Omissions) -> list[Request | Replayed]:
    """Row by row; ``arrival_s`` may be missing. Raises `RequestError` that names the bad rows."""
    requests: dict[int, Request | Replayed] = {}
    bad = []
    demands = _Demands(path.parent, omitted)
    for where, row in _toml(text) if path.suffix == ".toml" else _csv(text):
        try:
            request, trace = _request(row, demands)
            if request.job in requests:
                raise RowError("another row has the same job number", request.job)
            requests[request.job] = request if trace is None else Replayed(request, trace.name, trace.native_rate)
        except RowError as error:
            bad.append(f"{where}: {error}")
    if bad:
        more = f" And {len(bad) - NAMED} more." if len(bad) > NAMED else ""
        raise RequestError(
            f"{len(bad)} of {len(requests) + len(bad)} rows cannot be read. {'. '.join(bad[:NAMED])}.{more} "
            f"A row has {', '.join(COLUMNS)}, or {TRACE} in place of {' and '.join(OF_TRACE)}. Correct these rows, or remove them."
        )
    return list(requests.values())


class _Demands:
    """The requirements of each trace of a table, computed once."""

    def __init__(self, folder: Path, omitted: Omissions) -> None:
        self._folder = folder
        self._omitted = omitted
        self._found: dict[tuple[str, int | None], tuple[Demand, traces.Trace] | str] = {}  # text: why there is none

    def of(self, line: str, gpus: int | None) -> tuple[Demand, traces.Trace]:
        """Raises `RowError`."""
        if (line, gpus) not in self._found:
            try:
                self._found[line, gpus] = self._demand(line, gpus)
            except RequestError as error:
                self._found[line, gpus] = f"{TRACE}: {error}"
        found = self._found[line, gpus]
        if isinstance(found, str):
            raise RowError(found)
        return found

    def _demand(self, line: str, gpus: int | None) -> tuple[Demand, traces.Trace]:
        trace = _trace(line, self._folder)
        found = demand(trace, gpus)
        self._omitted.assume(OVERLAP)
        if trace.ranks not in (None, found.gpus):
            self._omitted.assume(
                f"{trace.name} was recorded with {trace.ranks} ranks, and a job replays it with {found.gpus}"
            )
        return found, trace


def _trace(line: str, folder: Path) -> traces.Trace:
    try:
        name, *words = shlex.split(line)
    except ValueError as error:
        raise RequestError(f"{quoted(line)} is not a trace with options: {error}") from error
    if model_jobs.is_line(line):
        if words and words[0].endswith(".toml"):
            words[0] = str(folder / words[0])
        return model_jobs.from_line(shlex.join((name, *words))).timed(None)
    options = dict(zip(words[::2], words[1::2], strict=False))
    if len(words) % 2 or len(options) < len(words) // 2 or not options.keys() <= OPTIONS.keys():
        raise RequestError(f"{quoted(line)} has options other than {', '.join(OPTIONS)}, each with a value and once")
    trace = traces.load(str(folder / name) if name.endswith(".json") else name)
    values = [read(options[option]) if option in options else None for option, read in OPTIONS.items()]
    return trace.timed(devices.device(*values))


def _csv(text: str) -> Iterator[tuple[str, Any]]:
    names = text.removeprefix("\ufeff").partition("\n")[0]
    columns = ("job", "iterations") if TRACE in names else COLUMNS[:-1]
    return rows.table(text, columns, "A table of jobs", optional=1)


def _toml(text: str) -> Iterator[tuple[str, Any]]:
    try:
        found = toml.loads(text).get("job", [])
    except toml.TomlError as error:
        raise RequestError(f"it is not TOML: {error}") from error
    if not isinstance(found, list):
        raise RequestError("job: it is not a list of tables. Give each job a table of its own: [[job]].")
    rows.check_count(len(found))
    for number, row in enumerate(found):
        yield f"job {number}", row


def _request(row: Any, demands: _Demands) -> tuple[Request, traces.Trace | None]:
    """The job, and the trace that it replays."""
    if isinstance(row, RowError):
        raise row
    if not isinstance(row, dict):
        raise RowError("it is not a table", row)
    given_names = len(row)
    row = {ALIASES.get(name, name): value for name, value in row.items()}
    if len(row) < given_names:
        raise RowError(f"two names of one column: {', '.join(f'{old} and {new}' for old, new in ALIASES.items())}")
    if unknown := [name for name in row if name not in (*COLUMNS, TRACE)]:
        raise RowError("unknown column", unknown[0])
    given = {name: value for name, value in row.items() if value not in ("", None)}
    line = given.pop(TRACE, None)
    if line is not None and (both := [name for name in OF_TRACE if name in given]):
        raise RowError(f"{both[0]} and a {TRACE}, which gives it. Remove one of them")
    from_trace = () if line is None else ("gpus", *OF_TRACE)
    if missing := [name for name in COLUMNS[:-1] if name not in given and name not in from_trace]:
        raise RowError(f"no {missing[0]}")
    counts = {name: rows.count(given[name], name, low, high) for name, (low, high) in COUNTS.items() if name in given}
    compute_s, arrival_s = (rows.number(given.get(name, 0.0), name, 0, MOST) for name in TIMES)
    trace = None
    if line is not None:
        if not isinstance(line, str):
            raise RowError(f"{TRACE} is no text", line)
        found, trace = demands.of(line, counts.get("gpus"))
        if found.gpus > rows.MOST_GPUS:
            raise RowError(f"{TRACE} has more than {rows.MOST_GPUS} ranks", found.gpus)
        counts |= {"gpus": found.gpus, "gradient_bytes": found.gradient_bytes}
        compute_s = found.compute_s
    request = Request(
        counts["job"], counts["gpus"], counts["iterations"], counts["gradient_bytes"], compute_s, arrival_s
    )
    return request, trace

"""Our own: CSV, or TOML with ``[[job]]``, of the same columns. It is written on purpose, so that a bad row refuses it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from testbed.core import toml
from testbed.core.errors import RequestError
from testbed.core.placing import Request
from testbed.traces import rows
from testbed.traces.rows import Omissions, RowError

TITLE = "our own table (CSV or TOML: job, gpus, iterations, gradient_bytes, compute_s, arrival_s)"
MOST = 10**15
COUNTS = {"job": (0, 10**9), "gpus": (1, rows.MOST_GPUS), "iterations": (1, 10**12), "gradient_bytes": (0, MOST)}
TIMES = ("compute_s", "arrival_s")
COLUMNS = (*COUNTS, *TIMES)
ALIASES = {"arrives_s": "arrival_s"}
NAMED = 3  # bad rows that the message quotes


def recognises(head: str, path: Path) -> bool:
    """TOML by its name; CSV by a first line with a column that only ours has."""
    return path.suffix == ".toml" or "gradient_bytes" in head.partition("\n")[0]


def read(text: str, path: Path, omitted: Omissions) -> list[Request]:
    """Row by row; ``arrival_s`` may be missing. Raises `RequestError` that names the bad rows."""
    requests: dict[int, Request] = {}
    bad = []
    for where, row in _toml(text) if path.suffix == ".toml" else _csv(text):
        try:
            request = _request(row)
            if request.job in requests:
                raise RowError("another row has the same job number", request.job)
            requests[request.job] = request
        except RowError as error:
            bad.append(f"{where}: {error}")
    if bad:
        more = f" And {len(bad) - NAMED} more." if len(bad) > NAMED else ""
        raise RequestError(
            f"{len(bad)} of {len(requests) + len(bad)} rows cannot be read. {'. '.join(bad[:NAMED])}.{more} "
            f"A row has {', '.join(COLUMNS)}. Correct these rows, or remove them."
        )
    return list(requests.values())


def _csv(text: str) -> Iterator[tuple[str, Any]]:
    return rows.table(text, COLUMNS[:-1], "A table of jobs", optional=1)


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


def _request(row: Any) -> Request:
    if isinstance(row, RowError):
        raise row
    if not isinstance(row, dict):
        raise RowError("it is not a table", row)
    given_names = len(row)
    row = {ALIASES.get(name, name): value for name, value in row.items()}
    if len(row) < given_names:
        raise RowError(f"two names of one column: {', '.join(f'{old} and {new}' for old, new in ALIASES.items())}")
    if unknown := [name for name in row if name not in COLUMNS]:
        raise RowError("unknown column", unknown[0])
    given = {name: value for name, value in row.items() if value not in ("", None)}
    if missing := [name for name in COLUMNS[:-1] if name not in given]:
        raise RowError(f"no {missing[0]}")
    job, gpus, iterations, gradient_bytes = (
        rows.count(given[name], name, low, high) for name, (low, high) in COUNTS.items()
    )
    compute_s, arrival_s = (rows.number(given.get(name, 0.0), name, 0, MOST) for name in TIMES)
    return Request(job, gpus, iterations, gradient_bytes, compute_s, arrival_s)

"""Our own: CSV, or TOML with ``[[job]]``, of the same columns."""

from __future__ import annotations

import csv
import io
from pathlib import Path
from typing import Annotated, Any

import msgspec

from core import toml
from core.errors import RequestError, within
from core.placing import Request
from core.text import quoted

TITLE = "our own table (CSV or TOML: job, gpus, iterations, gradient_bytes, compute_s, arrives_s)"
MOST = 10**15


class _Row(msgspec.Struct, forbid_unknown_fields=True):
    job: Annotated[int, msgspec.Meta(ge=0, le=10**9)]
    gpus: Annotated[int, msgspec.Meta(ge=1, le=10**6)]
    iterations: Annotated[int, msgspec.Meta(ge=1, le=10**12)]
    gradient_bytes: Annotated[int, msgspec.Meta(ge=0, le=MOST)]
    compute_s: Annotated[float, msgspec.Meta(ge=0, le=MOST)]
    arrives_s: Annotated[float, msgspec.Meta(ge=0, le=MOST)] = 0.0


COLUMNS = _Row.__struct_fields__


def recognises(head: str, path: Path) -> bool:
    """TOML by its name; CSV by a first line with a column that only ours has."""
    return path.suffix == ".toml" or "gradient_bytes" in head.partition("\n")[0]


def read(text: str, path: Path) -> list[Request]:
    """Row by row; ``arrives_s`` may be missing."""
    if path.suffix == ".toml":
        try:
            rows = toml.loads(text).get("job", [])
        except toml.TomlError as error:
            raise RequestError(f"it is not TOML: {error}") from error
        if not isinstance(rows, list):
            raise RequestError("give each job a table of its own: [[job]]")
        named = [(f"job {number}", row) for number, row in enumerate(rows)]
    else:
        table = csv.DictReader(io.StringIO(text))
        if missing := [one for one in COLUMNS[:-1] if one not in (table.fieldnames or ())]:
            raise RequestError(f"the column {missing[0]} is missing; a table of jobs has {','.join(COLUMNS)}")
        named = [(f"line {table.line_num}", dict(row)) for row in table]
    requests = [_request(where, row) for where, row in named]
    numbers = [one.job for one in requests]
    if len(set(numbers)) < len(numbers):
        raise RequestError(f"job {next(one for one in numbers if numbers.count(one) > 1)} stands there twice")
    return requests


def _request(where: str, row: Any) -> Request:
    with within(where):
        if isinstance(row, dict):
            if None in row:
                raise RequestError(f"it has more fields than the {len(row) - 1} columns of the table")
            row = {key: value for key, value in row.items() if value not in ("", None)}
        try:
            found = msgspec.convert(row, _Row, strict=False)
        except msgspec.ValidationError as error:
            raise RequestError(f"{error}; a job has {', '.join(COLUMNS)}") from error
        if not 0 <= found.compute_s + found.arrives_s <= 2 * MOST:  # what is no number passes every other comparison
            raise RequestError(f"{quoted(str(row))} has a time that is no number")
    return Request(**msgspec.structs.asdict(found))

"""Rows of job lists, read one at a time: a bad row is counted with its reason, and the other rows are kept."""

from __future__ import annotations

import csv
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime, tzinfo

from testbed.core.errors import RequestError
from testbed.core.text import quoted

MOST_ROWS = 2_000_000
MOST_COMMAS = 100 * MOST_ROWS  # more than any JSON list of so many jobs has
MOST_GPUS = 10**6
MOST_S = 10.0**12


class RowError(RequestError):
    """A row that cannot be used; ``reason`` is the same for all rows of its kind, ``value`` quotes this one."""

    def __init__(self, reason: str, value: object = None) -> None:
        self.reason, self.value = reason, "" if value is None else f": {quoted(value)}"
        super().__init__(f"{reason}{self.value}")


@dataclass(frozen=True)
class Omission:
    """Rows that a list leaves out for one reason."""

    reason: str
    rows: int
    first: str  # position and value of the first one


@dataclass
class Omissions:
    """The omitted rows of one list, and assumptions about the others."""

    assumed: list[str] = field(default_factory=list)
    _found: dict[str, Omission] = field(default_factory=dict)

    def assume(self, text: str) -> None:
        """Record once a value that the list lacks and its assumption."""
        if text not in self.assumed:
            self.assumed.append(text)

    def add(self, where: str, error: RowError) -> None:
        """Count a row."""
        known = self._found.get(error.reason) or Omission(error.reason, 0, f"{where}{error.value}")
        self._found[error.reason] = Omission(known.reason, known.rows + 1, known.first)

    @property
    def rows(self) -> int:
        """Return the number of all omitted rows."""
        return sum(one.rows for one in self._found.values())

    def by_reason(self) -> tuple[Omission, ...]:
        """The most frequent reason first."""
        return tuple(sorted(self._found.values(), key=lambda one: -one.rows))


def check_count(rows: int) -> None:
    """Raises `RequestError` for more rows than memory is meant for."""
    if rows > MOST_ROWS:
        raise RequestError(
            f"{rows} rows are more than the limit of {MOST_ROWS}. Split the list and schedule a part of it."
        )


def check_commas(text: str) -> None:
    """Raises `RequestError` for JSON with more entries than memory is meant for, before it is decoded."""
    if text.count(",") > MOST_COMMAS:
        raise RequestError(f"it has more entries than the limit of {MOST_ROWS} jobs allows. Split the list.")


def table(
    text: str, columns: Sequence[str], what: str, optional: int = 0, delimiter: str = ","
) -> Iterator[tuple[str, dict[str, str] | RowError]]:
    """Yield the position and the cells, by column, of each row of a CSV text. Raises `RequestError` for a header
    without ``columns``.

    Lines end with LF, CRLF or CR. Every line is a separate row: an open quote ends with its line. Empty lines are skipped. Cells are stripped.
    A row may lack its last ``optional`` cells. With a ``delimiter`` other than the comma, quotes have no special meaning.
    """
    check_count(text.count("\n") + text.count("\r") - text.count("\r\n"))
    rows = _lines(text.removeprefix("\ufeff"))
    _, header = next(rows, (1, ""))
    names = _cells(header, delimiter)
    if isinstance(names, RowError):
        raise RequestError(f"line 1: {names}")
    if missing := [column for column in columns if column not in names]:
        raise RequestError(f"the column {missing[0]} is missing. {what} has the columns {','.join(columns)}.")
    for number, line in rows:
        if not line.strip():
            continue
        cells = _cells(line, delimiter)
        if not isinstance(cells, RowError) and any(cells[len(names) :]):
            cells = RowError(f"it has more fields than the {len(names)} columns of the table")
        elif not isinstance(cells, RowError) and len(cells) < len(names) - optional:
            cells = RowError(f"it has fewer fields than the {len(names)} columns of the table")
        if isinstance(cells, RowError):
            yield f"line {number}", cells
            continue
        cells += [""] * (len(names) - len(cells))
        yield f"line {number}", dict(zip(names, cells, strict=False))


def cell(row: dict[str, str], column: str) -> str:
    """A cell that must not be blank; raises `RowError`."""
    if not row[column] or row[column].lower() in ("none", "null", "na"):
        raise RowError(f"no {column}")
    return row[column]


def count(value: object, name: str, low: int = 0, high: int = MOST_GPUS) -> int:
    """Return a whole number in a range: 8, 8.0 or 8e0. Raises `RowError`."""
    found = number(value, name, -math.inf, math.inf)
    if found != math.floor(found):
        raise RowError(f"{name} is not a whole number", value)
    if not low <= found <= high:
        raise RowError(f"{name} is not between {low} and {high}", value)
    return value if isinstance(value, int) else int(found)


def number(value: object, name: str, low: float = 0.0, high: float = MOST_S) -> float:
    """A finite number in a range; raises `RowError`."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise RowError(f"{name} is not a number", value)
    try:
        found = float("nan" if isinstance(value, str) and "_" in value else value)
    except (ValueError, OverflowError):
        found = math.nan
    if not math.isfinite(found):
        raise RowError(f"{name} is not a finite number", value)
    if not low <= found <= high:
        raise RowError(f"{name} is not between {low:g} and {high:g}", value)
    return found


def time_s(text: str, name: str, zone: tzinfo) -> float:
    """Seconds since 1970 of a time like 2020-04-02 10:00:00, in ``zone`` if it names none; raises `RowError`."""
    try:
        time = datetime.fromisoformat(text)
        return (time if time.tzinfo else time.replace(tzinfo=zone)).timestamp()
    except (ValueError, OverflowError) as error:
        raise RowError(f"{name} is not a time like 2020-04-02 10:00:00", text) from error


def _lines(text: str) -> Iterator[tuple[int, str]]:
    """Yield each line with its number, without its end and without a copy of the complete text."""
    start, number = 0, 0
    while start < len(text):
        number += 1
        line_feed = text.find("\n", start)
        end = len(text) if line_feed < 0 else line_feed
        carriage_return = text.find("\r", start, end)
        if carriage_return >= 0:
            end = carriage_return
        yield number, text[start:end]
        start = end + (2 if text.startswith("\r\n", end) else 1)


def _cells(line: str, delimiter: str) -> list[str] | RowError:
    if delimiter != ",":
        return [one.strip() for one in line.split(delimiter)]
    try:
        return [one.strip() for one in next(csv.reader((line,)), [])]
    except csv.Error as error:
        return RowError(f"it is not CSV: {error}")

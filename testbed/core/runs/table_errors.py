"""What is wrong in a table of a run directory: its first fault, with line and column.

A table is read by pandas, and looked at as a whole (`none_in`); only if that finds something, line by line (`first`).
"""

from __future__ import annotations

import csv
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
from msgspec import inspect

from testbed.core.runs import rows
from testbed.core.runs.rows import Row

LONGEST_LINE, MOST_BYTES = 1 << 16, 64 << 20  # so far a table is searched for its fault
SHOWN = 40  # characters of what stands there


@dataclass(frozen=True)
class Columns:
    """What a table must have (`needed`), and how what it may have looks."""

    needed: tuple[str, ...]
    numbers: tuple[str, ...]
    may_be_empty: tuple[str, ...]
    words: dict[str, str]  # of a column of text that has a form: a regular expression
    key: tuple[str, ...] = ()  # what no two rows have in common


def _columns(kind: type[Row], key: tuple[str, ...] = ()) -> Columns:
    """As the rows of a table say."""
    found = inspect.type_info(kind)
    assert isinstance(found, inspect.StructType)
    kinds = {field.name: _alternatives(field.type) for field in found.fields}
    return Columns(
        needed=tuple(field.name for field in found.fields if field.required),
        numbers=tuple(name for name, types in kinds.items() if isinstance(types[0], inspect.IntType | inspect.FloatType)),
        may_be_empty=tuple(name for name, types in kinds.items() if isinstance(types[-1], inspect.NoneType)),
        words={name: form for name, types in kinds.items() if (form := _form(types[0]))},
        key=key,
    )  # fmt: skip


def _alternatives(kind: inspect.Type) -> tuple[inspect.Type, ...]:
    return kind.types if isinstance(kind, inspect.UnionType) else (kind,)


def _form(kind: inspect.Type) -> str:
    if isinstance(kind, inspect.LiteralType):
        return "|".join(re.escape(str(value)) for value in kind.values)
    return (kind.pattern or "") if isinstance(kind, inspect.StrType) else ""


TABLES = {
    "iterations.csv": _columns(rows.Iteration, key=("job", "worker", "iteration")),
    "operations.csv": _columns(rows.Operation),
    "links.csv": _columns(rows.LinkSample),
    "nics.csv": _columns(rows.LinkSample),
    "priority_queues.csv": _columns(rows.Band, key=("link", "band")),
    "flows.csv": _columns(rows.FlowSample),
    "messages.csv": _columns(
        rows.Messages, key=("job", "worker", "iteration", "peer", "side", "stage", "operation", "message_index")
    ),
    "training.csv": _columns(rows.Training, key=("job", "iteration")),
    "disturbances.csv": _columns(rows.Disturbance),
    "jobs.csv": _columns(rows.Job, key=("job",)),
}


def none_in(table: pd.DataFrame, name: str) -> bool:
    """Whether every column of the table ``name`` is as a run writes it."""
    columns = TABLES[name]
    key = [name for name in columns.key if name in table.columns]
    if set(columns.needed) - set(table.columns) or (key and table.duplicated(key).any()):
        return False
    for number in set(columns.numbers) & set(table.columns):
        values = table[number]
        if len(values) and not (values.dtype.kind in "iuf" and _finite(values, number, columns)):
            return False
    words = [(table[name], form) for name, form in columns.words.items() if name in table.columns]
    return all(re.fullmatch(form, str(word)) for texts, form in words for word in texts.unique())


def _finite(values: pd.Series[float], name: str, columns: Columns) -> bool:
    known = values.dropna() if name in columns.may_be_empty else values
    return bool(np.isfinite(known).all())


def first(path: Path) -> str:
    """The first fault of a table as words, ``line 3, column start_s: …``; empty if none is found."""
    try:
        with path.open("rb") as file:
            return next(_faults(_lines(file), TABLES[path.name]), "")
    except OSError as error:
        return f"cannot be read: {error.strerror}"
    except csv.Error as error:
        return f"cannot be read: {error}"


def _lines(file: object) -> Iterator[str]:
    read = 0
    while read < MOST_BYTES and (line := file.readline(LONGEST_LINE)):  # type: ignore[attr-defined]
        read += len(line)
        yield line.decode("utf-8", "backslashreplace")


def _faults(lines: Iterator[str], columns: Columns) -> Iterator[str]:
    header = _row(next(lines, ""))
    if missing := [name for name in columns.needed if name not in header]:
        yield f"line 1: has no column {missing[0]}; it begins {_shown(','.join(header))}"
    seen: dict[tuple[str, ...], int] = {}
    for number, line in enumerate(lines, 2):
        row = _row(line)
        if not line.endswith("\n") or len(row) != len(header):
            yield f"line {number}: is cut off, or has {len(row)} columns where line 1 has {len(header)}: {_shown(line)}"
            return
        at = dict(zip(header, row, strict=True))
        yield from (
            f"line {number}, column {name}: {fault}" for name, text in at.items() if (fault := _in(name, text, columns))
        )
        if columns.key:
            one = tuple(at[name] for name in columns.key)
            if before := seen.get(one):
                yield f"line {number}: says again what line {before} has said ({', '.join(columns.key)})"
            seen[one] = number


def _row(line: str) -> list[str]:
    return next(csv.reader([line.rstrip("\r\n")]), [])


def _in(name: str, text: str, columns: Columns) -> str:
    """What is wrong with ``text`` in the column ``name``; empty if nothing is."""
    if name in columns.numbers:
        if text == "" and name in columns.may_be_empty:
            return ""
        try:
            number = float(text)
        except ValueError:
            return f"{_shown(text)} is not a number"
        return "" if math.isfinite(number) else f"{_shown(text)} is not a finite number"
    form = columns.words.get(name, "")
    return f"{_shown(text)} is none" if form and not re.fullmatch(form, text) else ""


def _shown(text: str) -> str:
    return ascii(text if len(text) <= SHOWN else f"{text[:SHOWN]}…")

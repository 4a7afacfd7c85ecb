"""The first fault in a table of a run directory, with line and column."""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np
import pandas as pd
from msgspec import inspect

from testbed.core.runs import rows
from testbed.core.runs.rows import Row

SHOWN = 40  # characters of a cell that a message quotes


@dataclass(frozen=True)
class Columns:
    """Columns that a table must have (`needed`), and the format of those that it may have."""

    needed: tuple[str, ...]
    numbers: tuple[str, ...]
    may_be_empty: tuple[str, ...]
    words: dict[str, str]  # regular expression of text columns, by column
    key: tuple[str, ...] = ()  # columns whose values identify a row

    def say(self, name: str) -> bool:
        """Return True if they define the format of a column's cells."""
        return name in self.numbers or name in self.words


def _columns(kind: type[Row], key: tuple[str, ...] = ()) -> Columns:
    """From the row type of a table."""
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
    "background.csv": _columns(rows.BackgroundFlow, key=("label", "flow")),
    "jobs.csv": _columns(rows.Job, key=("job",)),
}


def first(table: pd.DataFrame, name: str) -> str:
    """The first fault of the table ``name``, as pandas read it, in words: ``line 3, column start_s: …``; empty: it has none."""
    columns = TABLES[name]
    if missing := [needed for needed in columns.needed if needed not in table.columns]:
        return f"line 1: has no column {missing[0]}; it begins {_shown(','.join(map(str, table.columns)))}"
    if not isinstance(table.index, pd.RangeIndex):  # pandas reads surplus cells as the index
        return f"line 2: has more than the {len(table.columns)} columns of line 1"
    wrong = pd.DataFrame({column: _wrong(table[column], columns) for column in table.columns if columns.say(column)})
    if rows := [int(marks.to_numpy().argmax()) for _, marks in wrong.items() if marks.any()]:
        column = next(str(name) for name, marks in wrong.items() if marks.iloc[min(rows)])
        cell = table[column].iloc[min(rows)]
        what = "not a finite number" if column in columns.numbers else "not what a run writes"
        return f"line {min(rows) + 2}, column {column}: {_shown('' if pd.isna(cell) else str(cell))} is {what}"
    key = [part for part in columns.key if part in table.columns]
    if key and (again := table.duplicated(key).to_numpy()).any():
        return f"line {int(again.argmax()) + 2}: says again what a line before has said ({', '.join(key)})"
    return ""


def _wrong(values: pd.Series[float], columns: Columns) -> pd.Series[bool]:
    """Which cells of a column no run writes."""
    name = str(values.name)
    if name in columns.numbers:
        found: pd.Series[bool] = ~np.isfinite(pd.to_numeric(values, errors="coerce"))
        return found & values.notna() if name in columns.may_be_empty else found
    form = columns.words[name]
    return ~values.isin([word for word in values.unique() if re.fullmatch(form, str(word))])


def _shown(text: str) -> str:
    return ascii(text if len(text) <= SHOWN else f"{text[:SHOWN]}…")

"""A claim's cases, measured from the table of its figure: one number a case, with its interval over seeds."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from math import isfinite
from pathlib import Path
from typing import Literal

import numpy as np
import pandas as pd

from testbed.core.runs.load import LoadError
from testbed.models import statistics
from testbed.models.statistics import Estimate
from testbed.report import drawing
from testbed.report.claims import Claim, Measure
from testbed.report.grading import Case

Of = Literal["claim", "base", "control", "learning"]
VALUE = "_value"  # a separate column
SUMMARY = ("low", "high", "seeds")  # columns of a table that has a row a case, not a row a seed


class MeasureError(LoadError):
    """A table lacks a value that a claim needs."""


def of_claim(claim: Claim, tables: Mapping[str, Path], *, of: Of = "claim") -> list[Case]:
    """Return the cases of a claim, or of its reference; none if there is no table of it. Raises `MeasureError`.

    ``of``: "control" for the arm placebo; "learning" for values with the iterations in which MLTCP still learns.
    """
    place = tables.get(claim.measure.table or claim.figure)
    if place is None:
        return []
    table = pd.read_csv(place)
    measure = claim.measure
    try:
        rows = _where(table, {"base": claim.base, "learning": measure.learning}.get(of, measure.rows))
        if measure.by_arm:
            rows = rows[rows["arm"].isin(["base", "placebo" if of == "control" else claim.arm])]
        rows = rows.assign(_value=_values(rows, measure.value))
        return [case for case in _cases(rows, measure) if isfinite(case.value) or case.value > 0]
    except Exception as error:
        raise MeasureError(
            f"{claim.id}: {place.name} does not hold what it asks for ({type(error).__name__}: {error})"
        ) from error


def _values(rows: pd.DataFrame, expression: str) -> pd.Series[float]:
    """Unknown where a column that it names is: that is no iteration which never came."""
    if rows.empty:
        return pd.Series(dtype=float)
    used = [column for column in rows.columns if re.search(rf"\b{re.escape(str(column))}\b", expression)]
    found = pd.Series(np.asarray(rows.eval(expression), dtype=float), index=rows.index)
    return found.mask(rows[used].isna().any(axis="columns"))


def _where(rows: pd.DataFrame, query: str) -> pd.DataFrame:
    return rows.query(query, engine="python") if query else rows


def _cases(rows: pd.DataFrame, measure: Measure) -> Iterator[Case]:
    for name, of_case in _groups(rows, measure.cases):
        if not measure.numerator:
            yield from _summed_up(name, of_case, measure)
            continue
        above = _where(of_case, measure.numerator)
        for each, below in _groups(_where(of_case, measure.denominator), measure.each):
            if len(above) and len(below):
                yield from _ratio(", ".join(filter(None, (name, each))), above, below, measure)


def _groups(rows: pd.DataFrame, columns: tuple[str, ...]) -> Iterator[tuple[str, pd.DataFrame]]:
    """Rows by case, and its name; all of them without columns."""
    if not columns:
        yield "", rows
    elif len(rows):
        for key, group in rows.groupby(list(columns), sort=False, dropna=False):
            yield ", ".join(map(_name, columns, key)), group


def _counted(what: str) -> Callable[[float], str]:
    return lambda count: drawing.count(int(count), what)


_NAMES: dict[str, Callable[[float], str]] = {
    "rate_bps": lambda bps: drawing.rate(int(bps)),
    "rtt_ms": lambda ms: f"round trip {ms:g} ms",
    "rto_ms": lambda ms: f"minimum RTO {ms:g} ms",
    "ideal_ms": lambda ms: f"iterations of {ms:g} ms",
    "buffer_ms": lambda ms: f"buffer {ms:g} ms",
    "buffer_bytes": lambda size: f"buffer {drawing.size(int(size))}",
    "bytes": lambda size: f"{drawing.size(int(size))} a worker",
    "queue_bdp": lambda bdp: f"queue {bdp:g} BDP",
    "loss": lambda share: f"loss {100 * share:g} %",
    "load": lambda share: f"load {share:g}",
    "missing": lambda share: f"{share:.0%} missing",
    "burst": lambda share: f"bursts lose {share:.0%}",
    **{f"{what}s": _counted(what) for what in ("job", "flow", "sender", "server", "worker")},
}


def _name(column: str, value: object) -> str:
    """A column's value in words: ``8 jobs``, ``minimum RTO 200 ms``."""
    if isinstance(value, str):
        return value
    return _NAMES[column](float(str(value))) if column in _NAMES else f"{column} {value}"


def _summed_up(name: str, rows: pd.DataFrame, measure: Measure) -> Iterator[Case]:
    """A case of its rows: one a seed, or one in all with its own interval."""
    if set(SUMMARY) <= set(rows.columns):
        for _, row in rows.iterrows():
            low, high = (None if pd.isna(row[end]) else float(row[end]) for end in SUMMARY[:2])
            yield Case(
                name,
                float(row[VALUE]),
                low,
                high,
                int(row["seeds"]),
                iterations=int(row.get("iterations", 0)),
                like=tuple(rows[VALUE]),
            )
        return
    values = _by_repeat(rows, measure)
    if len(values):
        yield _case(name, values, rows, measure)


def _by_repeat(rows: pd.DataFrame, measure: Measure) -> pd.Series[float]:
    """Return the mean of each seed.

    Unknown values are left out; events that never occurred have ``measure.never``.
    """
    known = rows[VALUE] if measure.never is None else rows[VALUE].fillna(measure.never)
    known = known.astype(float)
    if measure.average == "every":  # one row per run
        return known.dropna()
    return known.groupby([rows[column] for column in measure.per]).mean().dropna()


def _ratio(name: str, above: pd.DataFrame, below: pd.DataFrame, measure: Measure) -> Iterator[Case]:
    if measure.fastest:
        (best, above), (own, below) = (_fastest(rows, measure) for rows in (above, below))
        name = ", ".join(filter(None, (name, own, f"over {best}" if best else "")))
    first, second = (_by_repeat(rows, measure) for rows in (above, below))
    values = (first / second).dropna()
    if len(values):
        yield _case(name, values, pd.concat([above, below]), measure)


def _fastest(rows: pd.DataFrame, measure: Measure) -> tuple[str, pd.DataFrame]:
    """Of several systems the one with the least mean, among those that are there in the most seeds; its name, unless it is the only one."""
    means = {
        str(system): (-len(values), float(values.mean()))
        for system, group in rows.groupby(measure.fastest, sort=False)
        if len(values := _by_repeat(group, measure))
    }
    if not means:
        return "", rows.iloc[:0]
    best = min(means, key=means.__getitem__)
    return best if len(means) > 1 else "", rows[rows[measure.fastest].astype(str) == best]


def _case(name: str, values: pd.Series[float], rows: pd.DataFrame, measure: Measure) -> Case:
    found = _estimate(list(values), measure)
    low, high = found.interval or (None, None)
    seeds = len(values)
    if measure.per != ("seed",) or measure.average == "every":
        known = rows[rows[VALUE].notna()]
        seeds = min(seeds, int(known["seed"].nunique())) if "seed" in known else seeds
    numbers = rows.drop(columns=[*measure.cases, *measure.each, "experiment"], errors="ignore").select_dtypes("number")
    return Case(
        name, found.value, low, high, seeds, like=tuple(map(tuple, numbers.round(9).fillna(-1.0).to_numpy().tolist()))
    )


def _estimate(values: list[float], measure: Measure) -> Estimate:
    if measure.average == "geometric":
        return statistics.estimate_ratio(values)
    if measure.average == "every":
        return statistics.proportion(sum(map(bool, values)), len(values))
    return (statistics.median if measure.average == "median" else statistics.mean)(values)

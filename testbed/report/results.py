"""The results of one experiment for Python: its verdict, its tables as DataFrames, its figures."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import msgspec
import pandas as pd
from matplotlib.figure import Figure

from testbed import registry
from testbed.core.errors import RequestError
from testbed.core.runs.load import (
    Experiment,
    LoadError,
    Run,
    holds_schedules,
    load_experiment,
    load_schedules,
    load_summary,
)
from testbed.core.runs.summary import Summary
from testbed.core.runs.verdict import Row, Word
from testbed.core.text import decimal, did_you_mean, quoted
from testbed.report import figures, style, views
from testbed.report.study import Study


@dataclass(frozen=True)
class Results:
    """The results of one experiment, as `run`, `sweep` and `load` return them. Tables are read on first use.

    Every member raises `LoadError` if a file of the results is missing, damaged, or of another format version.
    """

    path: Path  # the experiment's folder

    def __repr__(self) -> str:
        return f"<testbed.Results {str(self.path)!r}: {self.verdict}>"

    @cached_property
    def _summary(self) -> Summary:
        return load_summary(self.path)

    @cached_property
    def _experiments(self) -> list[Experiment]:
        """One for each job scheduler that is compared."""
        schedulers = sorted({path.parents[2] for path in self.path.glob("*/*/[0-9]*/manifest.json")} - {self.path})
        placed = [path for path in schedulers if path.parent == self.path and path.name != "isolated"]
        return [load_experiment(path) for path in placed] or [load_experiment(self.path)]

    @property
    def _runs(self) -> list[Run]:
        return [run for experiment in self._experiments for run in experiment.runs]

    @property
    def verdict(self) -> Word:
        """Return the worst verdict of all runs."""
        return "valid" if self._schedules is not None else self._summary.verdict

    @cached_property
    def _schedules(self) -> pd.DataFrame | None:
        """Return the table of an experiment of schedules, which has no runs; else None."""
        if not holds_schedules(self.path):
            return None
        return load_schedules(self.path).table.rename(columns={"scheduler": "system"})

    @property
    def reasons(self) -> tuple[str, ...]:
        """Each invariant that is not met: the run, the invariant's name, and the measured value. Empty if the results are valid."""
        if self._schedules is not None:
            return ()
        found = [
            f"{run.system}, seed {run.seed}: {_reason(row)}"
            for run in self._runs
            for row in run.verdict.invariants
            if row.status in ("suspect", "invalid")
        ]
        over_seeds = [
            f"{result.system}: {_reason(row)}"
            for result in self._summary.results
            if (row := result.repeatability) is not None and row.status in ("suspect", "invalid")
        ]
        return tuple(found + over_seeds)

    @property
    def summary(self) -> pd.DataFrame:
        """A row per system (and job scheduler), as in ``summary.json``; times in seconds."""
        if self._schedules is not None:
            return (
                self._schedules.groupby("system", sort=False).mean(numeric_only=True).drop(columns="seed").reset_index()
            )
        rows = msgspec.json.decode(msgspec.json.encode(self._summary.results))
        nested = {"per_job", "findings", "repeatability", "schedule"}
        return pd.DataFrame([{name: value for name, value in row.items() if name not in nested} for row in rows])

    @property
    def tables(self) -> tuple[str, ...]:
        """The names of the stored tables, which `table` takes."""
        if self._schedules is not None:
            return ("schedules",)
        return tuple(sorted({path.stem for run in self._runs for path in run.path.glob("*.csv")}))

    def table(self, name: str) -> pd.DataFrame:
        """The table ``name`` of all runs except isolated ones, with the columns ``system`` and ``seed`` first.

        Units are in the names of columns (``_s``, ``_us``, ``_bytes``); docs/reference/file-formats.md describes all columns.
        Raises `RequestError` for an unknown table.
        """
        if self._schedules is not None and name == "schedules":
            return self._schedules.copy()
        runs = [] if self._schedules is not None else self._runs
        parts = [(run, part) for run in runs if _is_name(name) and (part := run.table(name)) is not None]
        if not parts:
            hint = did_you_mean(name, self.tables, f"Tables: {', '.join(self.tables)}.")
            raise RequestError(f"{self.path}: these runs have no table {quoted(name)}. {hint}")
        several = len({run.plan.scheduler for run in runs}) > 1
        return pd.concat([_labelled(run, part, several) for run, part in parts], ignore_index=True)

    def plot(self, name: str = "interleaving") -> Figure:
        """Draw a view of this experiment (``interleaving``, ``times``, ``windows``, ``queues``, ``link-shares``,
        ``per-job``, ``shares``), a figure of the report by its id, or ``./mine.py``.

        Raises `RequestError` for an unknown name, and `LoadError` if these runs have no data for the figure.
        """
        with tempfile.TemporaryDirectory() as aside, style.collected() as drawn:
            if name in views.NAMES:
                views.NAMES[name].draw(self._experiments[0], Path(aside))
            else:
                figure = self._figure(name)
                figure.draw(self._study(figure.ID), Path(aside))
        if not drawn:
            raise LoadError(f"{self.path}: holds nothing that the figure {quoted(name)} shows. Plot another figure.")
        found = drawn[0]
        assert isinstance(found, Figure)
        return found

    @staticmethod
    def _figure(name: str) -> figures.Figure:
        try:
            return figures.find(name)
        except registry.UnknownContentError as error:
            named = ", ".join(views.NAMES)
            raise registry.UnknownContentError(
                f"unknown view {quoted(name)}. Views: {named}. It is no figure of the report either: {error}"
            ) from error

    def _study(self, figure: str) -> Study:
        if self._schedules is not None:
            return Study(figure, (), (), load_schedules(self.path))
        return Study(figure, tuple(self._experiments), ())


def load(path: str | Path) -> Results:
    """The results in an experiment's folder (``results/NAME``); raises `LoadError` if it holds none."""
    results = Results(Path(path).absolute())
    if not holds_schedules(results.path):
        load_summary(results.path)
    return results


def _labelled(run: Run, table: pd.DataFrame, several: bool) -> pd.DataFrame:
    own = {"system": run.system, **({"scheduler": run.plan.scheduler} if several else {}), "seed": run.seed}
    rest = table.drop(columns=[name for name in own if name in table.columns])
    for place, (name, value) in enumerate(own.items()):
        rest.insert(place, name, value)
    return rest


def _is_name(name: str) -> bool:
    return name.isidentifier()


def _reason(row: Row) -> str:
    value = "" if row.value is None else f" is {decimal(row.value)}"
    limits = "".join(f", {kind} {decimal(limit, 6)}" for kind, limit in (row.limit or {}).items())
    return f"{row.label}: {row.name}{value}{limits}" + (f": {row.note}" if row.note else "")

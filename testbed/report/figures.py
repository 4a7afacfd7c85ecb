"""The figures of the report, one file each, named after their id (``cdf-reno``: ``cdf_reno.py``).

Each has ``ID``, ``TITLE`` (one line), ``TEXT`` (its content, and how to read it) and ``draw(study, out) ->
list[Path]``, which writes ``<id>.png``, ``.pdf``, ``.csv`` (the data behind it) and further tables to ``out``, or
raises `LoadError`. It is a pure function of run directories; a study without experiments draws nothing. The claims on
its tables are in ``claims.toml`` in the same folder (`testbed.report.claims`). ``POSITION`` is its place in the report,
in steps of ten. A figure with ``plot(tables)``, too, can be drawn from its tables without runs:
`testbed.report.redrawing`. A figure of experiments with other names gives a pattern: ``EXPERIMENTS = "predict-*"``. A
figure that compares backends sets ``SEVERAL_BACKENDS = True``; others must not mix them.
"""

from __future__ import annotations

from collections.abc import Mapping
from fnmatch import fnmatchcase
from math import inf
from pathlib import Path
from typing import Any, Protocol, TypeGuard, cast

import pandas as pd

from testbed import registry
from testbed.report.claims import Content, of_figures
from testbed.report.study import Study

Tables = Mapping[str, pd.DataFrame]  # a figure's CSV files by name


class Figure(Protocol):
    """The interface of a module of this package."""

    ID: str
    TITLE: str
    TEXT: str

    def draw(self, study: Study, out: Path) -> list[Path]: ...


class Plotted(Figure, Protocol):
    """A figure that follows from its tables (`testbed.report.redrawing`)."""

    def plot(self, tables: Tables) -> Any: ...


def is_plotted(figure: Figure) -> TypeGuard[Plotted]:
    """Return True if a figure can be drawn from its tables, without runs."""
    return hasattr(figure, "plot")


def every() -> list[Figure]:
    """Return all figures, in the order of the report: by `POSITION`; those without one come last."""
    kind = registry.FIGURE
    found = [cast(Figure, registry.find(kind, name)) for name in (*registry.names(kind), *registry.installed(kind))]
    return sorted(found, key=lambda figure: (getattr(figure, "POSITION", inf), figure.ID))


def id_for(experiment: str) -> str:
    """Return the id of the figure for an experiment of this id; the same id, unless a figure's pattern matches."""
    patterns = {figure.ID: pattern(figure) for figure in every()}
    return next((id for id, one in patterns.items() if fnmatchcase(experiment, one)), experiment)


def pattern(figure: Figure) -> str:
    """Return the pattern of the names of the experiments that a figure draws: its ``EXPERIMENTS``, or else its ID."""
    return str(getattr(figure, "EXPERIMENTS", figure.ID))


def claims() -> Content:
    """Return all claims of all figures, and the sentences of abstracts."""
    return of_figures(getattr(figure, "__file__", None) for figure in every())


def find(name: str) -> Figure:
    """Return the figure ``name`` (``cdf-reno`` or ``./mine.py``).

    Raises `registry.UnknownContentError` or `registry.ContentError`.
    """
    return cast(Figure, registry.find(registry.FIGURE, name if registry.is_file_name(name) else name.replace("-", "_")))

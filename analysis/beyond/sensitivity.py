"""Slope and intercept of F: where MLTCP interleaves, how soon, and where the published values stand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from testbed.congestion.curves import ONE
from testbed.core.runs.load import LoadError
from testbed.report import drawing, redrawing, style
from testbed.report import observations as observed
from testbed.report.figures import Tables
from testbed.report.study import Study

ID = "sensitivity"
POSITION = 170
TITLE = "A slope of at least seven times the intercept brings four jobs to within 5 % of the ideal"
TEXT = (
    "A cell for each slope and intercept of F. Left: steady-state iteration time relative to the ideal, mean over seeds (below: range; title: "
    "base). Right: the median iteration from which every job stays within 5 % of its time in isolation (below: in how many seeds). Framed: the default. "
    "White: not run."
)
DEFAULT = (1.75, 0.25)


def draw(study: Study, out: Path) -> list[Path]:
    """Write ``sensitivity.{png,pdf,csv}``; the data: a row per run."""
    table = _table(study)
    note = (
        f"{drawing.setting(study.runs[0])}; {drawing.count(table['jobs'].iloc[0], 'job')}, together {table['load'].iloc[0]:.0%} of the link; "
        f"{drawing.count(table['seed'].nunique(), 'seed')}."
    )
    return redrawing.publish(plot, {ID: table}, note, out)


def plot(tables: Tables) -> Any:
    """A map of iteration times and one of the iterations until interleaved."""
    table = tables[ID]
    variants = table.dropna(subset="slope")
    figure, axes = style.new_figure(1, 2, figsize=(11, 4.2))
    base = table[table["role"] != "treatment"]
    title = "Steady-state iteration time ÷ ideal"
    if len(base):
        title += f" ({base['cc'].iloc[0]}: {base['settled'].mean():.2f})"
    cells = variants.pivot_table(index="intercept", columns="slope", values="settled")
    worst = max(1.1, float(table["settled"].max()))
    numbers = variants.pivot_table(index="intercept", columns="slope", values="settled", aggfunc=_spread).reindex_like(
        cells
    )
    _heat(axes[0, 0], cells, numbers, title, 1.0, worst)
    at = variants.pivot_table(
        index="intercept", columns="slope", values="interleaved_at", aggfunc="median", dropna=False
    )
    words = variants.pivot_table(
        index="intercept", columns="slope", values="interleaved_at", aggfunc=_when
    ).reindex_like(at)
    last = max(1.0, float(at.replace(np.inf, np.nan).max().max())) + 1  # where those stand that never interleave
    _heat(axes[0, 1], at.replace(np.inf, last), words, "Interleaved from iteration", 0.0, last)
    return figure


def _table(study: Study) -> pd.DataFrame:
    table = observed.table(study)
    if table.empty or not (table["role"] == "treatment").any():
        raise LoadError("sensitivity: there is no run of MLTCP; run experiments/sensitivity.toml")
    for name in ("slope", "intercept"):
        table[name] = [
            run.constants(run.system)[name] / ONE if run.role == "treatment" else np.nan for run in study.runs
        ]
        table[name] = table[name].round(2)
    return table


def _heat(axis: Any, cells: pd.DataFrame, words: pd.DataFrame, title: str, low: float, high: float) -> None:
    values = cells.to_numpy(dtype=float)
    axis.imshow(values, origin="lower", aspect="auto", cmap="cividis", vmin=low, vmax=high)
    for (y, x), word in np.ndenumerate(words.fillna("").to_numpy()):
        dark = (values[y, x] - low) / (high - low) < 0.5
        axis.text(x, y, word, ha="center", va="center", fontsize=10, color="white" if dark else "black")
    if DEFAULT[0] in cells.columns and DEFAULT[1] in cells.index:
        axis.add_patch(_frame([*cells.columns].index(DEFAULT[0]), [*cells.index].index(DEFAULT[1])))
    axis.set_xticks(range(len(cells.columns)), [f"{value:g}" for value in cells.columns])
    axis.set_yticks(range(len(cells.index)), [f"{value:g}" for value in cells.index])
    axis.grid(visible=False)
    axis.set_xlabel("slope S")
    axis.set_ylabel("intercept I")
    axis.set_title(title, fontsize=10)


def _spread(values: pd.Series[float]) -> str:
    ends = f"{values.min():.2f}", f"{values.max():.2f}"
    return f"{values.mean():.2f}" + ("" if ends[0] == ends[1] else f"\n{ends[0]}–{ends[1]}")


def _when(at: pd.Series[float]) -> str:
    """The median of iterations, infinite (never) ones included, and how many there are."""
    known = at.dropna()
    if known.empty:
        return ""
    middle = float(known.median())
    return ("never" if np.isinf(middle) else f"{middle:g}") + f"\n{np.isfinite(known).sum()} of {len(known)}"


def _frame(x: int, y: int) -> Any:
    from matplotlib.patches import Rectangle  # noqa: PLC0415

    return Rectangle((x - 0.46, y - 0.46), 0.92, 0.92, fill=False, edgecolor=drawing.BASE, linewidth=2.5)

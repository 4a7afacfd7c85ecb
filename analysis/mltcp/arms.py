"""The part of MLTCP's gain that is due to F: the published rule, the additions of `recommended`, and both with F = 1 at every r."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd

from testbed.core.runs.load import LoadError
from testbed.report import drawing, redrawing, style
from testbed.report import observations as observed
from testbed.report.figures import Tables
from testbed.report.study import Study

ID = "arms"
POSITION = 15
TITLE = "F interleaves jobs; the other rules of the preset alone do not"
TEXT = (
    "Steady-state iteration times ÷ ideal, a dot a seed. Arm paper is the published rule alone. Arm recommended adds three rules of ours. Arm "
    "placebo is recommended with F = 1 at every r: what it gains over the base is not due to F."
)


def draw(study: Study, out: Path) -> list[Path]:
    """Write ``arms.{png,pdf,csv}``; the data: a row per run."""
    table = _table(study)
    jobs, load = drawing.count(table["jobs"].iloc[0], "job"), table["load"].iloc[0]
    seeds = drawing.count(table["seed"].nunique(), "seed")
    note = f"{drawing.setting(study.runs[0])}; {jobs}, together {load:.0%} of the link; {seeds} (dots), means, 95 % intervals."
    return redrawing.publish(plot, {ID: table}, note, out)


def plot(tables: Tables) -> Any:
    """Iteration times of each arm."""
    table = tables[ID]
    arms = [arm for arm in (observed.BASE, *observed.ARMS) if arm in set(table["arm"])]
    figure, axes = style.new_figure(1, 1, figsize=(6.4, 4.2))
    axis = axes[0, 0]
    for x, arm in enumerate(arms):
        drawing.seeds(axis, x, list(table[table["arm"] == arm]["settled"]), drawing.ARMS[arm], width=0.5)
    axis.axhline(1, color=style.REFERENCE, linewidth=0.8, linestyle="--")
    names = dict(zip(table["arm"], table["cc"], strict=True))
    axis.set_xticks(range(len(arms)), [names[arm] if arm == observed.BASE else arm for arm in arms])
    axis.grid(visible=False, axis="x")
    axis.set_ylabel("iteration time ÷ ideal, steady state")
    return figure


def _table(study: Study) -> pd.DataFrame:
    if not study.runs:
        raise LoadError(f"{ID}: there are no runs; run experiments/{ID}.toml")
    return observed.table(study)

"""Which gains add up: job schedulers crossed with ways to share links, on one list of jobs, with real traffic."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from testbed.report import drawing, emulated, schedules, style
from testbed.report.study import Study

ID = "sjf-sharing"
POSITION = 460
TITLE = "Who runs where, and who sends when: which gains add up"
TEXT = (
    "One list of sixteen jobs, given GPUs by each job scheduler (rows) and carried by each system (columns), with real traffic. Left the makespan, right the mean completion, in "
    "seconds, the mean over seeds; darker is longer. A row of panels for each communication ÷ computing."
)
PANELS = (("makespan_s", "Makespan (s)"), ("completion_s", "Mean completion (s)"))


def draw(study: Study, out: Path) -> list[Path]:
    """Write ``sjf-sharing.{png,pdf,csv}``; the data: a row per run."""
    table = emulated.table(study)
    ratios = sorted(table["ratio"].unique())
    height = 1.4 + 0.55 * table["scheduler"].nunique()
    figure, axes = style.new_figure(len(ratios), 2, figsize=(11.0, len(ratios) * height))
    for row, ratio in zip(axes, ratios, strict=True):
        for axis, (column, title) in zip(row, PANELS, strict=True):
            _panel(axis, table[table["ratio"] == ratio], column)
            axis.set(title=f"{title}, communication ÷ computing {ratio:.2g}")
    drawing.caption(figure, f"{drawing.setting(study.runs[0])}; {drawing.count(table['seed'].nunique(), 'seed')}")
    return drawing.save(figure, table, out, ID)


def _panel(axis: Axes, table: pd.DataFrame, column: str) -> None:
    """The mean of a column, by job scheduler and system."""
    names, systems = (list(dict.fromkeys(table[key])) for key in ("scheduler", "system"))
    means = table.pivot_table(index="scheduler", columns="system", values=column).reindex(index=names, columns=systems)
    axis.imshow(means.to_numpy(), cmap="Greys", aspect="auto", vmin=0, vmax=1.6 * float(np.nanmax(means.to_numpy())))
    for row, name in enumerate(names):
        for place, system in enumerate(systems):
            axis.text(place, row, f"{means.loc[name, system]:.3g}", ha="center", va="center")
    axis.set_xticks(range(len(systems)), systems)
    axis.set_yticks(range(len(names)), [schedules.short(name) for name in names])
    axis.grid(visible=False)

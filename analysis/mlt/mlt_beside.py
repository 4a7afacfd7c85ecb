"""MLT competing with TCP on one link, in one queue and in separate queues: the share of each."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd

from testbed.core.runs.load import LoadError, Run
from testbed.report import drawing, redrawing, style
from testbed.report.coexistence import FAIR, shares
from testbed.report.figures import Tables
from testbed.report.study import Study

ID = "mlt-beside"
POSITION = 360
TITLE = "In one queue TCP starves MLT, and in separate queues MLT starves TCP"
TEXT = (
    "One job sends by MLT, the other by TCP, a message after the other, as fast as they go. Bars: share of the link, means; dots are seeds. In one queue MLT slows down for "
    "the delay that TCP makes; in separate priority queues, which are served first, MLT leaves TCP the rest."
)


def draw(study: Study, out: Path) -> list[Path]:
    """Write ``mlt-beside.{png,pdf,csv}``; the data: a row per run."""
    rows = _table(study)
    note = f"{drawing.setting(study.runs[0])}; {drawing.count(rows['seed'].nunique(), 'seed')} (dots). Dashed: half."
    return redrawing.publish(plot, {ID: rows}, note, out)


def plot(tables: Tables) -> Any:
    """The share of each, in one queue and in separate ones."""
    rows = tables[ID]
    figure, axes = style.new_figure(1, 2, figsize=(9.5, 4.0), sharey=True)
    for axis, own in zip(axes[0], (False, True), strict=True):
        mine = rows[rows["own"] == own]
        systems = list(dict.fromkeys(rows["system"]))
        for colour, column, label in ((style.JOBS[0], "mlt_share", "MLT"), (style.JOBS[1], "other_share", "TCP")):
            at = [place + (0.18 if column == "other_share" else -0.18) for place in range(len(systems))]
            means = mine.groupby("system")[column].mean().reindex(systems)
            axis.bar(at, means, width=0.34, color=colour, label=label)
            places = dict(zip(systems, at, strict=True))
            axis.plot(mine["system"].map(places), mine[column], "o", color="black", markersize=3)
        axis.axhline(FAIR, color=style.REFERENCE, linewidth=0.9, linestyle="--")
        axis.set_xticks(range(len(systems)), systems)
        axis.set(title="in separate priority queues" if own else "in one queue", ylim=(0, 1.02), xlabel="MLT next to")
    axes[0, 0].set_ylabel("share of the link")
    axes[0, 0].legend(loc="upper left")
    return figure


def _table(study: Study) -> pd.DataFrame:
    """``system, role, seed, own, mlt_share, other_share``; raises `LoadError` without runs of two jobs."""
    rows = [row for run in study.runs if (row := _row(run)) is not None]
    if not rows:
        raise LoadError(f"{ID}: there are no runs of MLT next to TCP; run experiments/{ID}.toml")
    return pd.DataFrame(rows)


def _row(run: Run) -> dict[str, object] | None:
    found = shares(run)
    if found is None:
        return None
    return {
        "system": run.system, "role": run.role, "seed": run.seed, "own": max(link.bands for link in run.plan.bottlenecks.values()) > 1, "mlt_share": found[0], "other_share": found[1],
    }  # fmt: skip

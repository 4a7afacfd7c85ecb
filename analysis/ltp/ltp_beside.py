"""LTP competing with TCP, and with itself, on one link: the share of each, by the length of the queue."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from testbed.core.runs.load import LoadError, Run
from testbed.core.runs.metrics import jain_index
from testbed.report import drawing, redrawing, style
from testbed.report.coexistence import FAIR, shares
from testbed.report.figures import Tables
from testbed.report.study import Study

ID = "ltp-beside"
POSITION = 240
TITLE = "Next to LTP a loss-based TCP keeps as little as 2 % of its fair share"
TEXT = (
    "One job sends by LTP, the other by the transport of the legend, one message after another. Left: the other's share of the link; middle: LTP's; right: "
    "Jain's index (1: equal, 0.5: one has everything). Queues in bandwidth-delay products. LTP does not slow down for losses."
)


def draw(study: Study, out: Path) -> list[Path]:
    """Write ``ltp-beside.{png,pdf,csv}``; the data: a row per run."""
    rows, one = _table(study), study.runs[0]
    note = (
        f"{drawing.rate(one.rate_bps)}, round trip {one.plan.base_rtt_s * 1e3:.0f} ms; {drawing.count(rows['seed'].nunique(), 'seed')} (dots), "
        f"means; {drawing.backend(one)}. Payload acknowledged, of what the link can carry of it. Dashed: half."
    )
    return redrawing.publish(plot, {ID: rows}, note, out)


def plot(tables: Tables) -> Any:
    """Both shares and their fairness, over the length of the queue."""
    rows = tables[ID]
    figure, axes = style.new_figure(1, 3, figsize=(13, 4.2))
    _lines(axes[0, 0], rows, "other_share", "share of the link", "Share of the other job")
    _lines(axes[0, 1], rows, "ltp_share", "share of the link", "Share of LTP")
    _lines(axes[0, 2], rows, "jain", "Jain's index", "Fairness")
    for axis in axes[0, :2]:
        axis.axhline(FAIR, color=style.REFERENCE, linewidth=0.9, linestyle="--")
        axis.set_ylim(0, 1.02)
    axes[0, 2].set_ylim(0.48, 1.02)
    figure.legend(
        *axes[0, 0].get_legend_handles_labels(), loc="outside upper center", ncols=rows["system"].nunique(), fontsize=9
    )
    return figure


def _lines(axis: Any, rows: pd.DataFrame, column: str, label: str, title: str) -> None:
    """A line a system over the queue's length, a dot a run."""
    for colour, (system, mine) in zip(style.JOBS, rows.groupby("system", sort=False), strict=False):
        means = mine.groupby("queue_bdp")[column].mean()
        axis.plot(means.index, means, color=colour, label=f"next to {system}")
        axis.plot(mine["queue_bdp"], mine[column], "o", color=colour, markersize=3.5)
    axis.set_xscale("log", base=2)
    axis.set_xticks(sorted(rows["queue_bdp"].unique()), [f"{value:g}" for value in sorted(rows["queue_bdp"].unique())])
    axis.set_xlabel("queue (bandwidth-delay products)")
    axis.set_ylabel(label)
    axis.set_title(title)


def _table(study: Study) -> pd.DataFrame:
    """``system, role, seed, queue_bdp, alike, yields, ltp_share, other_share, jain, drops``; raises `LoadError` without LTP."""
    rows = [row for run in study.runs if (row := _row(run)) is not None]
    if not rows:
        raise LoadError(f"{ID}: there are no runs with LTP; run experiments/{ID}.toml")
    return pd.DataFrame(rows).sort_values("queue_bdp", kind="stable", ignore_index=True)


def _row(run: Run) -> dict[str, Any] | None:
    found, other = shares(run), run.jobs[-1]
    if found is None:
        return None
    bdp = run.rate_bps / 8 * run.plan.base_rtt_s
    return {
        "system": run.system, "role": run.role, "seed": run.seed, "queue_bdp": float(f"{run.plan.link.buffer_bytes / bdp:.2g}"),
        "alike": not other.by_tcp, "yields": not (other.cc.traits.paced or other.cc.traits.may_leave_idle), "ltp_share": found[0], "other_share": found[1], "jain": jain_index(np.array(found)),
        "drops": int(run.links["drops"].max()) if len(run.links) else 0,
    }  # fmt: skip

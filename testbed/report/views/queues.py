"""The queue of the busiest bottleneck in the last iterations, a panel for each system. A model has no queue, so it has no such figure."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
from matplotlib.lines import Line2D

from testbed.core.runs.load import Experiment, Run
from testbed.models import bottleneck
from testbed.report import drawing, style
from testbed.report.views import panels

_DROPS, _MARKS = style.JOBS[1], style.JOBS[2]  # colours


def draw(experiment: Experiment, out: Path) -> list[Path]:
    """Write ``queues.{png,pdf,csv}`` to ``out``; nothing if no link was sampled, or if the busiest one is unknown."""
    runs = panels.first_runs(experiment)
    link = bottleneck.busiest(runs)
    if link is None or any(drawing.is_model(run) or run.links.empty for run in runs):
        return []

    def panel(axis: Any, run: Run) -> pd.DataFrame:
        rows = panels.between(run.links[run.links["link"] == link], *panels.last_iterations(run))
        axis.plot(rows["t_s"], rows["backlog_bytes"] / 1e3, color=style.REFERENCE, linewidth=0.9)
        lost = rows[rows["drops"].diff() > 0]
        axis.plot(lost["t_s"], lost["backlog_bytes"] / 1e3, "x", color=_DROPS, markersize=5)
        threshold = run.plan.bottlenecks[link].ecn_threshold
        if threshold is not None:
            axis.axhline(threshold.min_bytes / 1e3, color=_MARKS, linewidth=1, linestyle="--")
        return rows[["t_s", "link", "backlog_bytes", "drops", "ecn_marks"]]

    handles = [
        Line2D([], [], color=style.REFERENCE, label="queue"),
        Line2D([], [], color=_DROPS, linestyle="", marker="x", label="packets dropped since the sample before"),
    ]
    if any(run.plan.bottlenecks[link].ecn_threshold is not None for run in runs):
        handles.append(Line2D([], [], color=_MARKS, linestyle="--", label="packets are ECN-marked from here on"))
    about = (
        f"Queue of {panels.arrow(link)}, the busiest direction of a bottleneck, in the last {panels.SHOWN} iterations."
    )
    return panels.draw(experiment, "queues", "Queue of the bottleneck", "queue (kB)", handles, panel, about, out)

"""Congestion windows of each job in the last iterations, a panel for each system. A model has no windows, so it has no such figure."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd

from testbed.core.runs.load import Experiment, Run
from testbed.report.views import panels


def draw(experiment: Experiment, out: Path) -> list[Path]:
    """Write ``windows.{png,pdf,csv}`` to ``out``; nothing if no socket was sampled."""
    runs = panels.first_runs(experiment)
    if not all(run.flows["cwnd_segments"].notna().any() for run in runs):
        return []
    about = f"Sum of the congestion windows of each job's flows in the last {panels.SHOWN} iterations."
    handles = panels.job_lines(runs[0])
    return panels.draw(experiment, "windows", "Congestion windows", "window (segments)", handles, _panel, about, out)


def _panel(axis: Any, run: Run) -> pd.DataFrame:
    flows = panels.between(run.flows, *panels.last_iterations(run))
    table = flows.groupby(["job", "t_s"])["cwnd_segments"].sum().reset_index()
    for job in run.jobs:
        own = table[table["job"] == job.job]
        axis.plot(own["t_s"], own["cwnd_segments"], color=panels.colour(job.job), linewidth=1.2)
    return table

"""What happens in a run, packets and windows: each job's window, its NIC's queue, the bottleneck's queue, and what is lost."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from testbed.core.runs.load import Run
from testbed.models import bottleneck
from testbed.report import style

ROWS = ("window (segments)", "NIC's queue (kB)", "link's queue (kB)", "resent (segments)")
SHOWN = 3  # iterations


def draw(axes: Any, run: Run, title: str) -> None:
    """The last `SHOWN` iterations of ``run`` on a column of `ROWS` axes."""
    begin_s, end_s = _span(run)
    windows, nics, queue, resent = axes
    windows.set_title(title)
    flows = _between(run.flows, begin_s, end_s)
    waiting = None if run.nics is None else _between(run.nics, begin_s, end_s)
    for job in run.jobs:
        colour = style.JOBS[job.job % len(style.JOBS)]
        over_time = flows[flows["job"] == job.job].groupby("t_s")[["cwnd_segments", "retrans_segments"]].sum()
        at = over_time.index - begin_s
        windows.plot(at, over_time["cwnd_segments"], color=colour, linewidth=1, label=f"job {job.job}")
        resent.plot(
            at, over_time["retrans_segments"] - over_time["retrans_segments"].iloc[0], color=colour, linewidth=1
        )
        if waiting is not None:
            own = waiting[waiting["link"].str.startswith(f"{job.hosts[0]}-")]
            nics.plot(own["t_s"] - begin_s, own["backlog_bytes"] / 1e3, color=colour, linewidth=1)
    link = bottleneck.busiest([run])
    rows = _between(run.links[run.links["link"] == link], begin_s, end_s)
    queue.plot(rows["t_s"] - begin_s, rows["backlog_bytes"] / 1e3, color=style.REFERENCE, linewidth=0.9)
    lost = rows[rows["drops"].diff() > 0]
    queue.plot(lost["t_s"] - begin_s, np.zeros(len(lost)), "x", color=style.JOBS[1], markersize=4)
    resent.set_xlabel("time (s)")
    for axis in (nics, queue, resent):
        axis.set_xlim(0, end_s - begin_s)
        axis.set_ylim(bottom=0, auto=True)  # or the next column's run would be cut off


def _span(run: Run) -> tuple[float, float]:
    ends = run.times
    starts = run.iterations.groupby("iteration")["start_s"].min()
    last = int(starts.index.max())
    begin_s = float(starts.loc[max(0, last - SHOWN + 1)])
    return begin_s, begin_s + SHOWN * float(ends.iloc[-SHOWN:].to_numpy().mean())


def _between(table: pd.DataFrame, begin_s: float, end_s: float) -> pd.DataFrame:
    return table[(table["t_s"] >= begin_s) & (table["t_s"] <= end_s)]

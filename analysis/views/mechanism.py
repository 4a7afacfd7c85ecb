"""What happens in a run, packets and windows: each job's window, its NIC's queue, the bottleneck's queue, and what is lost."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from analysis import style
from core.runs.load import Run
from theory import bottleneck

ROWS = ("window (segments)", "NIC's queue (kB)", "link's queue (kB)", "resent (segments)")
SHOWN = 3  # iterations


def draw(axes: Any, run: Run, title: str) -> None:
    """The last `SHOWN` iterations of ``run`` on a column of `ROWS` axes."""
    begin_s, end_s = _span(run)
    windows, nics, queue, resent = axes
    windows.set_title(title)
    flows = _between(run.flows, begin_s, end_s)
    for number in range(len(run.jobs)):
        rows, colour = flows[flows["job"] == number], style.JOBS[number % len(style.JOBS)]
        over_time = rows.groupby("t_s")[["cwnd_segments", "retrans"]].sum()
        at = over_time.index - begin_s
        windows.plot(at, over_time["cwnd_segments"], color=colour, linewidth=1, label=f"job {number}")
        resent.plot(at, over_time["retrans"] - over_time["retrans"].iloc[0], color=colour, linewidth=1)
    if run.nics is not None:
        for number, (_, rows) in enumerate(_senders(_between(run.nics, begin_s, end_s), len(run.jobs))):
            nics.plot(
                rows["t_s"] - begin_s,
                rows["backlog_bytes"] / 1e3,
                color=style.JOBS[number % len(style.JOBS)],
                linewidth=1,
            )
    link = bottleneck.busiest([run])
    rows = _between(run.links[run.links["link"] == link], begin_s, end_s)
    queue.plot(rows["t_s"] - begin_s, rows["backlog_bytes"] / 1e3, color=style.REFERENCE, linewidth=0.9)
    lost = rows[rows["drops"].diff() > 0]
    queue.plot(lost["t_s"] - begin_s, np.zeros(len(lost)), "x", color=style.JOBS[1], markersize=4, label="drops")
    resent.set_xlabel("time (s)")
    for axis in (nics, queue, resent):
        axis.set_xlim(0, end_s - begin_s)
        axis.set_ylim(bottom=0)


def _span(run: Run) -> tuple[float, float]:
    ends = run.times
    starts = run.iterations.groupby("iteration")["start_s"].min()
    last = int(starts.index.max())
    begin_s = float(starts.loc[max(0, last - SHOWN + 1)])
    return begin_s, begin_s + SHOWN * float(ends.iloc[-SHOWN:].to_numpy().mean())


def _between(table: pd.DataFrame, begin_s: float, end_s: float) -> pd.DataFrame:
    return table[(table["t_s"] >= begin_s) & (table["t_s"] <= end_s)]


def _senders(nics: pd.DataFrame, jobs: int) -> list[tuple[str, pd.DataFrame]]:
    """The NICs that send most, one a job, by name: job 1's host is the first."""
    sent = nics.groupby("link")["bytes"].agg(lambda column: column.iloc[-1] - column.iloc[0])
    most = set(sent.nlargest(jobs).index)
    return [(str(name), rows) for name, rows in nics.groupby("link") if name in most]

"""The map: where MLTCP helps, by how much, and where it does not, over the number of jobs and what they need together."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd

from testbed.core.runs.load import Run
from testbed.models.statistics import geometric_mean
from testbed.report import drawing, redrawing, style
from testbed.report import observations as observed
from testbed.report.figures import Tables
from testbed.report.study import Study

ID = "map"
POSITION = 90
TITLE = "On drop-tail links MLTCP gains most behind 1 to 4 ms of queue (mean 1.35 times), and slows jobs down behind 40 ms (0.83)"
TEXT = (
    "Steady-state speed-up over the base, over the size of the queue; mean over seeds, 95 % intervals (cut at the edge), shaded: slower. "
    "Columns: load of the jobs together. Rows: mean and 99th percentile, behind NICs at link rate and unshaped NICs. Dotted: largest possible gain of the mean."
)
MEASURED = (("mean", "mean"), ("p99", "99th percentile"))
KEYS = ("jobs", "load", "buffer_ms", "nic")
UNLIMITED = "unlimited"
SHADE = "#F3E3DC"  # slower than the base
TICKS = (0.5, 0.6, 0.7, 0.8, 0.9, 1, 1.2, 1.4, 1.6, 2, 2.5)


def draw(study: Study, out: Path) -> list[Path]:
    """Write ``map.{png,pdf,csv}``; the data: a row per run."""
    table, pair = _table(study)
    one = study.runs[0]
    note = (
        f"{one.plan.topology}, {drawing.rate(one.rate_bps)}, MTU {one.plan.link.mtu:,}, drop-tail; {drawing.backend(one)}; {pair[0]} ÷ {pair[1]}; "
        f"1 s in isolation, clustered starts; {drawing.count(table['seed'].nunique(), 'seed')} (dots), paired."
    )
    return redrawing.publish(plot, {ID: table}, note, out)


def plot(tables: Tables) -> Any:
    """Gains over the queue's size: a column a load, a row a kind of NIC and metric, a line a number of jobs."""
    table = tables[ID]
    pair = observed.pair(observed.roles(table))
    assert pair is not None
    gains = _gains(table, pair)
    nics = sorted(gains["nic"].unique(), key=lambda one: one == UNLIMITED)
    rows = [(nic, column, title) for nic in nics for column, title in MEASURED]
    loads, jobs = sorted(gains["load"].unique()), sorted(gains["jobs"].unique())
    figure, axes = style.new_figure(
        len(rows), len(loads), figsize=(1.2 + 3.5 * len(loads), 0.9 + 2.5 * len(rows)), sharex=True, sharey="row"
    )  # fmt: skip
    for line, (nic, column, title) in zip(axes, rows, strict=True):
        for axis, load in zip(line, loads, strict=True):
            here = gains[(gains["nic"] == nic) & (gains["load"] == load)]
            _lines(axis, here, column, jobs)
            drawing.plain_log(axis.yaxis)
        means = gains[gains["nic"] == nic].groupby(["jobs", "load", "buffer_ms"])[column].agg(geometric_mean)
        low, high = min(0.9, 0.93 * means.min()), max(1.2, 1.08 * means.max())
        if column == "mean":
            high = max(high, 1.03 * gains["most"].max())
        line[0].set_yticks(TICKS, [f"{tick:g}" for tick in TICKS])
        for axis in line:
            axis.axhspan(low / 2, 1, color=SHADE, zorder=0)
        line[0].set_ylim(low, high)
        line[0].set_ylabel(f"gain of the {title}\n{'unshaped NICs' if nic == UNLIMITED else 'NICs at link rate'}")
    buffers = sorted(gains["buffer_ms"].unique())
    for axis, load in zip(axes[0], loads, strict=True):
        axis.set_title(f"jobs need {load:.0%} of the link")
        drawing.plain_log(axis.xaxis)
        axis.set_xticks(buffers, [f"{buffer:g}" for buffer in buffers])
    for axis in axes[-1]:
        axis.set_xlabel("queue (ms at link rate)")
    figure.legend(*axes[0, 0].get_legend_handles_labels(), loc="outside upper center", ncols=len(jobs) + 1, fontsize=9)
    return figure


def _lines(axis: Any, gains: pd.DataFrame, column: str, jobs: list[int]) -> None:
    """A line a number of jobs, and what is possible at most; each a little aside of the next."""
    for number, (colour, marker) in zip(jobs, zip(style.JOBS, "osD^v", strict=False), strict=False):
        mine = gains[gains["jobs"] == number]
        aside = 1 + 0.05 * (jobs.index(number) - (len(jobs) - 1) / 2)
        moved = mine.assign(buffer_ms=mine["buffer_ms"] * aside)
        drawing.trend(axis, moved, "buffer_ms", column, colour, label=drawing.count(number, "job"), marker=marker)
        if column == "mean":
            most = mine.groupby("buffer_ms")["most"].mean()
            axis.plot(most.index, most, ":", color=colour, linewidth=1)
    axis.axhline(1, color="black", linewidth=0.8)


def _nic(run: Run) -> str:
    rate_bps = run.plan.sender.nic_bps
    return UNLIMITED if rate_bps is None else f"of {rate_bps / run.rate_bps:.0%} of the link's rate"


def _table(study: Study) -> tuple[pd.DataFrame, tuple[str, str]]:
    table, pair = observed.compared(study)
    buffer_ms = (1e3 * table["buffer_bytes"] * 8 / table["rate_bps"]).round(2)
    return table.assign(load=table["load"].round(2), buffer_ms=buffer_ms, nic=[_nic(run) for run in study.runs]), pair


def _gains(table: pd.DataFrame, pair: tuple[str, str]) -> pd.DataFrame:
    """One row per cell and seed: ``jobs, load, buffer_ms, nic, seed, mean, p99`` (speed-ups in steady state), ``most``."""
    of_means, of_tails = (observed.speed_ups(table, pair, column, KEYS) for column in ("settled", "settled_p99"))
    gains = of_means.rename(columns={"speed_up": "mean"}).merge(of_tails.rename(columns={"speed_up": "p99"}))
    overlapped = 1 + gains["load"] * (1 - 1 / gains["jobs"])
    return gains.assign(most=overlapped / gains["load"].clip(lower=1))

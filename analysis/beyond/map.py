"""The map: where MLTCP helps, by how much, and where it does not, over the number of jobs and what they need together."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.colors import TwoSlopeNorm
from matplotlib.patches import Rectangle

from testbed.core.runs.load import Run
from testbed.models.statistics import log_interval
from testbed.report import drawing, style
from testbed.report import observations as observed
from testbed.report.study import Study

ID = "map"
POSITION = 90
TITLE = "Where MLTCP helps, and by how much"
TEXT = (
    "Each cell is a number of jobs and what they need of the link together (100 %: they just fit). Large: how many times faster the settled half "
    "is than under the base, mean over seeds, bold where the 95 % interval (small) does not hold 1. A framed cell is one in which MLTCP "
    "makes iterations longer (below 0.98×). One row for each buffer; mean and 99th percentile for each kind of hosts' NICs; right the most that is possible for the mean: "
    "fair sharing at full overlap against the least that the link allows. The base's own drift takes its part of that."
)
HARM = 0.98
MEASURED = (("mean", "Speed-up of the mean"), ("p99", "Speed-up of the 99th percentile"))
KEYS = ("jobs", "load", "buffer_ms", "nic")


def draw(study: Study, out: Path) -> list[Path]:
    """Write ``map.{png,pdf,csv}``; the data: a row per run."""
    table, pair = _table(study)
    gains = _gains(table, pair)
    buffers = sorted(set(gains["buffer_ms"]))
    nics = sorted(set(gains["nic"]), key=lambda one: one == "unlimited")
    columns = [(nic, column, title) for nic in nics for column, title in MEASURED]
    figure, axes = style.new_figure(
        len(buffers), len(columns) + 1, figsize=(3.5 * len(columns) + 3.5, (1.3 + 0.72 * table["jobs"].nunique()) * len(buffers)),
        sharey=True, sharex=True,
    )  # fmt: skip
    top = max(1.2, float(gains["most"].max()))
    for number, (row, buffer_ms) in enumerate(zip(axes, buffers, strict=True)):
        for axis, (nic, column, title) in zip(row, columns, strict=False):
            _heat(axis, gains[(gains["nic"] == nic) & (gains["buffer_ms"] == buffer_ms)], column, top)
            if number == 0:
                axis.set_title(f"{title}\nNICs {nic}", fontsize=11)
        row[0].set_ylabel(f"buffer {buffer_ms:g} ms\njobs" if len(buffers) > 1 else "jobs")
        row[-1].set_visible(number == 0)
    _heat(axes[0, -1], gains, "most", top)
    axes[0, -1].set_title("Most that is possible\n(mean, any buffer)", fontsize=11)
    for axis in (*axes[-1], axes[0, -1]):
        axis.tick_params(labelbottom=True)
        axis.set_xlabel("load: what the jobs need together")
    one = study.runs[0]
    drawing.caption(
        figure,
        f"{one.plan.topology}, {drawing.rate(one.rate_bps)}, MTU {one.plan.link.mtu:,}, queues that drop; {drawing.backend(one)}; {pair[0]} ÷ {pair[1]}; one second alone, overlapped starts; {drawing.count(table['seed'].nunique(), 'seed')}, paired; "
        "settled half of the iterations.",
    )
    return drawing.save(figure, table, out, ID)


def _nic(run: Run) -> str:
    rate_bps = run.plan.sender.nic_bps
    return "unlimited" if rate_bps is None else f"of {rate_bps / run.rate_bps:.0%} of the link's rate"


def _table(study: Study) -> tuple[pd.DataFrame, tuple[str, str]]:
    table, pair = observed.compared(study)
    buffer_ms = (1e3 * table["buffer_bytes"] * 8 / table["rate_bps"]).round(2)
    return table.assign(load=table["load"].round(2), buffer_ms=buffer_ms, nic=[_nic(run) for run in study.runs]), pair


def _gains(table: pd.DataFrame, pair: tuple[str, str]) -> pd.DataFrame:
    """One row per cell and seed: ``jobs, load, buffer_ms, nic, seed, mean, p99`` (speed-ups of the settled half), ``most``."""
    of_means, of_tails = (observed.speed_ups(table, pair, column, KEYS) for column in ("settled", "settled_p99"))
    gains = of_means.rename(columns={"speed_up": "mean"}).merge(of_tails.rename(columns={"speed_up": "p99"}))
    overlapped = 1 + gains["load"] * (1 - 1 / gains["jobs"])
    return gains.assign(most=overlapped / gains["load"].clip(lower=1))


def _heat(axis: Any, gains: pd.DataFrame, column: str, top: float) -> None:
    jobs, loads = sorted(gains["jobs"].unique()), sorted(gains["load"].unique())
    cells = gains.pivot_table(index="jobs", columns="load", values=column).reindex(index=jobs, columns=loads)
    scale = TwoSlopeNorm(1.0, vmin=1 - 0.4 * (top - 1), vmax=top)  # steeper below 1: harm shall not look pale
    axis.imshow(cells, origin="lower", aspect="auto", cmap="PuOr", norm=scale)
    for (y, x), value in np.ndenumerate(cells.to_numpy()):
        if np.isnan(value):
            continue
        colour = "white" if abs(scale(value) - 0.5) > 0.3 else "black"
        found = log_interval(gains[(gains["jobs"] == jobs[y]) & (gains["load"] == loads[x])][column])
        sure = found is None or not found[0] <= 1 <= found[1]
        axis.text(
            x, y, f"{value:.2f}×", ha="center", va="center", fontsize=12, fontweight="bold" if sure else "normal", color=colour
        )  # fmt: skip
        if column != "most" and found:
            axis.text(x, y - 0.3, f"{found[0]:.2f}–{found[1]:.2f}", ha="center", va="center", fontsize=8, color=colour)
        if value < HARM:
            axis.text(x, y + 0.28, "slower", ha="center", va="center", fontsize=9, fontweight="bold", color=colour)
            axis.add_patch(Rectangle((x - 0.46, y - 0.46), 0.92, 0.92, fill=False, edgecolor=drawing.BASE, linewidth=3))
    axis.set_xticks(range(len(loads)), [f"{load:.0%}" for load in loads])
    axis.set_yticks(range(len(jobs)), [str(job) for job in jobs])
    axis.grid(visible=False)

"""The law of marks: what MLTCP gains against how many frames of marking threshold each flow has."""

from __future__ import annotations

from math import nan
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from testbed.core.runs.load import LoadError, Run
from testbed.models.statistics import geometric_mean, log_interval
from testbed.report import drawing, style
from testbed.report import observations as observed
from testbed.report.study import Study

ID = "frames"
POSITION = 105
TITLE = "MLTCP needs two to three frames of marking threshold for each flow"
TEXT = (
    "Mean iteration of Reno ÷ MLTCP-Reno's, second half of each run, with 95 % intervals over seeds, against the marking threshold in frames for each flow. "
    "A window has at least two segments. With less threshold than that every flow is marked at its least window, and F has nothing left to divide."
)
DASHES = {"recommended": "-", "paper": "--", "placebo": ":"}
POINT = ["jobs", "flows", "rate_bps", "mtu", "frames"]


def draw(study: Study, out: Path) -> list[Path]:
    """Write ``frames.{png,pdf,csv}``, a row a run, and ``frames-gains.csv``, a row a seed and arm."""
    if not study.runs:
        raise LoadError(f"{ID}: there are no runs; run experiments/{ID}.toml")
    table = pd.DataFrame([_row(run) for run in study.runs])
    gains = _gains(table)
    network: Any = gains.groupby(["rate_bps", "mtu"]).size().idxmax()
    usual = (gains[["rate_bps", "mtu"]] == list(network)).all(axis="columns")
    panels = [
        (drawing.count(int(str(flows)), "flow") + " a job", rows, "jobs")
        for flows, rows in gains[usual].groupby("flows")
    ]
    if not usual.all():
        others = gains[~usual].assign(
            network=[_network(*key) for key in gains.loc[~usual, ["rate_bps", "mtu"]].to_numpy()]
        )
        panels.append(("other links, 8 jobs", others, "network"))
    columns = min(3, len(panels))
    lines = -(-len(panels) // columns)
    figure, axes = style.new_figure(lines, columns, figsize=(4.6 * max(columns, 2), 3.8 * lines), sharey=True)
    for axis, (title, rows, key) in zip(axes.ravel(), panels, strict=False):
        _panel(axis, rows, key)
        axis.set_title(title)
    for axis in axes.ravel()[len(panels) :]:
        axis.set_axis_off()
    drawing.caption(
        figure,
        f"{drawing.rate(int(network[0]))}, MTU {network[1]:,}, if not said otherwise; jobs need 96 % of the link, noise 1 %; "
        f"{drawing.count(gains['seed'].nunique(), 'seed')}; {drawing.backend(study.runs[0])}. Full lines: recommended; dashed: the paper's rule; dotted: placebo (F = 1).",
    )
    return [*drawing.save(figure, table, out, ID), *drawing.write_tables({f"{ID}-gains": gains}, out)]


def _panel(axis: Any, rows: pd.DataFrame, key: str) -> None:
    """Gains over frames: a colour a value of ``key``, a line style an arm."""
    for (value, of_value), colour in zip(rows.groupby(key), style.JOBS, strict=False):
        for arm, mine in of_value.groupby("arm"):
            found = mine.groupby("frames")["gain"]
            named = str(value) if key == "network" else drawing.count(int(str(value)), "job")
            axis.plot(
                list(found.groups), [geometric_mean(list(one)) for _, one in found], DASHES[str(arm)], marker="o", markersize=4,
                color=colour, label=named if arm == "recommended" or len(DASHES) > of_value["arm"].nunique() else None,
            )  # fmt: skip
            for at, one in found:
                low, high = log_interval(one) or (nan, nan)
                axis.vlines(at, low, high, color=colour, linewidth=3, alpha=0.3)
    axis.axhline(1, color=style.REFERENCE, linewidth=0.8)
    axis.set(xlabel="marking threshold (frames a flow)", ylabel="× as fast as Reno")
    axis.legend(fontsize=7.5)


def _network(rate_bps: int, mtu: int) -> str:
    return f"{drawing.rate(int(rate_bps))}, MTU {mtu:,}"


def _row(run: Run) -> dict[str, Any]:
    return {
        "cc": run.system, "arm": observed.arm(run), "seed": run.seed, "jobs": len(run.jobs), "flows": run.jobs[0].channels,
        "rate_bps": run.rate_bps, "mtu": run.plan.link.mtu, "frames": observed.threshold_frames(run),
        "settled": float(np.concatenate(observed.second_halves(run)).mean()), "timeouts": run.manifest.measured.counters.tcp_timeouts,
    }  # fmt: skip


def _gains(table: pd.DataFrame) -> pd.DataFrame:
    """The base's mean ÷ an arm's, by seed."""
    before = table[table["arm"] == observed.BASE][[*POINT, "seed", "settled"]]
    found = table[table["arm"] != observed.BASE].merge(before, on=[*POINT, "seed"], suffixes=("", "_base"))
    if found.empty:
        raise LoadError(f"{ID}: there are no results of both a base and MLTCP; run experiments/{ID}.toml")
    return found.assign(gain=found["settled_base"] / found["settled"])[[*POINT, "arm", "seed", "gain"]]

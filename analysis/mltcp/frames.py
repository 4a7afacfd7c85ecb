"""The law of marks: what MLTCP gains against how many frames of marking threshold each flow has."""

from __future__ import annotations

from math import nan
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from testbed.core.runs.load import LoadError, Run
from testbed.models.statistics import geometric_mean, log_interval
from testbed.report import drawing, redrawing, style
from testbed.report import observations as observed
from testbed.report.figures import Tables
from testbed.report.study import Study

ID = "frames"
POSITION = 105
TITLE = "MLTCP needs two to three frames of marking threshold for each flow"
TEXT = (
    "Mean iteration of Reno ÷ MLTCP-Reno's, second half of each run, 95 % intervals over seeds. "
    "With less threshold than two segments a flow every window is at its minimum, and F has nothing to divide. "
    "Stars: ours, with windows below two segments, gains there. "
    "The largest gain of five seeds is 1.61 (`recommended`, 8 jobs of four flows)."
)
OURS, OURS_PLACEBO = "ours", "ours, F = 1"  # examples/tcp_mltcp_paced.c
DASHES = {"recommended": "-", "paper": "--", "placebo": ":", OURS: "", OURS_PLACEBO: ""}
MARKERS = {OURS: "*", OURS_PLACEBO: "x"}
SIZES = {OURS: 9, OURS_PLACEBO: 7}
POINT = ["jobs", "flows", "rate_bps", "mtu", "frames"]
MAPPED = 4  # frames a flow, of the map over jobs and flows


def draw(study: Study, out: Path) -> list[Path]:
    """Write ``frames.{png,pdf,csv}``, a row a run, and ``frames-gains.csv``, a row a seed and arm."""
    if not study.runs:
        raise LoadError(f"{ID}: there are no runs; run experiments/{ID}.toml")
    table = pd.DataFrame([_row(run) for run in study.runs])
    gains = _gains(table)
    network = _usual(gains)
    seeds = sorted(gains.groupby(POINT)["seed"].nunique().unique())
    note = (
        f"{drawing.rate(network[0])}, MTU {network[1]:,}, if not said otherwise; jobs need 96 % of the link, noise 1 %; "
        f"{drawing.count(seeds[-1], 'seed') if len(seeds) == 1 else f'{seeds[0]} to {seeds[-1]} seeds'}; {drawing.backend(study.runs[0])}. "
        "Full lines: recommended; dashed: the paper's rule; dotted: placebo (F = 1); stars: windows below two segments; crosses: the same, F = 1."
    )
    return redrawing.publish(plot, {ID: table, f"{ID}-gains": gains}, note, out)


def plot(tables: Tables) -> Any:
    """Gain over frames, a panel a number of flows; other links; then gain over jobs at four frames."""
    gains = tables[f"{ID}-gains"]
    usual = (gains[["rate_bps", "mtu"]] == list(_usual(gains))).all(axis="columns")
    thresholds = gains.groupby(["jobs", "flows", "rate_bps", "mtu"])["frames"].transform("nunique")
    panels = [
        (drawing.count(int(str(flows)), "flow") + " a job", rows, "jobs")
        for flows, rows in gains[usual & (thresholds > 1)].groupby("flows")
    ]
    if not usual.all():
        others = gains[~usual].assign(
            network=[_network(*key) for key in gains.loc[~usual, ["rate_bps", "mtu"]].to_numpy()]
        )
        panels.append(("other links, 8 jobs", others, "network"))
    by_jobs = gains[usual & (gains["frames"] == MAPPED)]
    count = len(panels) + (not by_jobs.empty)
    columns = min(3, count)
    lines = -(-count // columns)
    figure, axes = style.new_figure(lines, columns, figsize=(4.6 * max(columns, 2), 3.8 * lines), sharey=True)
    for axis, (title, rows, key) in zip(axes.ravel(), panels, strict=False):
        _panel(axis, rows, key)
        axis.set(title=title, xlabel="marking threshold (frames a flow)")
    if not by_jobs.empty:
        axis = axes.ravel()[len(panels)]
        _panel(axis, by_jobs, "flows", over="jobs")
        axis.set_xscale("log", base=2)
        axis.set_xticks(sorted(by_jobs["jobs"].unique()), sorted(by_jobs["jobs"].unique()))
        axis.set(title=f"{MAPPED} frames a flow", xlabel="jobs")
    axes[0, 0].set_ylim(top=1.12 * axes[0, 0].get_ylim()[1])  # room for the legends
    for axis in axes.ravel()[count:]:
        axis.set_axis_off()
    return figure


def _usual(gains: pd.DataFrame) -> tuple[int, int]:
    """The rate and the MTU of most rows."""
    found: Any = gains.groupby(["rate_bps", "mtu"]).size().idxmax()
    return int(found[0]), int(found[1])


def _panel(axis: Any, rows: pd.DataFrame, key: str, over: str = "frames") -> None:
    """Gains over a column: a colour a value of ``key``, a line style an arm."""
    for (value, of_value), colour in zip(rows.groupby(key), style.JOBS, strict=False):
        named = str(value) if key == "network" else drawing.count(int(str(value)), key.removesuffix("s"))
        for arm, mine in of_value.groupby("arm"):
            found = mine.groupby(over)["gain"]
            axis.plot(
                list(found.groups), [geometric_mean(list(one)) for _, one in found], DASHES[str(arm)], marker=MARKERS.get(str(arm), "o"),
                markersize=SIZES.get(str(arm), 4), zorder=4 if arm in SIZES else 2,
                color=colour, label=named if arm == of_value["arm"].max() else None,
            )  # fmt: skip
            for at, one in found:
                low, high = log_interval(list(one)) or (nan, nan)
                axis.vlines(at, low, high, color=colour, linewidth=3, alpha=0.3)
    axis.axhline(1, color=style.REFERENCE, linewidth=0.8)
    axis.set_ylabel("× as fast as Reno")
    axis.legend(fontsize=7.5, loc="upper left", ncols=2 if key == "network" else 3)


def _network(rate_bps: int, mtu: int) -> str:
    return f"{drawing.rate(int(rate_bps))}, MTU {mtu:,}"


def _row(run: Run) -> dict[str, Any]:
    return {
        "cc": Path(run.system).name, "arm": _arm(run), "seed": run.seed, "jobs": len(run.jobs), "flows": run.jobs[0].channels,
        "rate_bps": run.rate_bps, "mtu": run.plan.link.mtu, "frames": observed.threshold_frames(run),
        "settled": float(np.concatenate(observed.second_halves(run)).mean()), "timeouts": run.manifest.measured.counters.tcp_timeouts,
    }  # fmt: skip


def _arm(run: Run) -> str:
    """A base, a preset, or ours; a slope of 1/1024 is the least at which F learns."""
    constant = any(one.base and one.constants.get("slope") == 1 for one in run.plan.system.congestion)
    return observed.arm(run) or (OURS_PLACEBO if constant else OURS)


def _gains(table: pd.DataFrame) -> pd.DataFrame:
    """The base's mean ÷ an arm's, by seed."""
    before = table[table["arm"] == observed.BASE][[*POINT, "seed", "settled"]]
    found = table[table["arm"] != observed.BASE].merge(before, on=[*POINT, "seed"], suffixes=("", "_base"))
    if found.empty:
        raise LoadError(f"{ID}: there are no results of both a base and MLTCP; run experiments/{ID}.toml")
    return found.assign(gain=found["settled_base"] / found["settled"])[[*POINT, "arm", "seed", "gain"]]

"""From any start, with any number of jobs: how many iterations until all are interleaved."""

from __future__ import annotations

from math import inf
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.ticker import PercentFormatter

from testbed.core.runs import measured
from testbed.core.runs.load import Run
from testbed.models import statistics
from testbed.report import drawing, fluid_comparison, redrawing, style
from testbed.report.figures import Tables
from testbed.report.study import Study

ID = "convergence"
POSITION = 130
TITLE = "MLTCP-Reno interleaves jobs of one flow within 10 iterations (median); with eight flows a job it never does"
TEXT = (
    "First iteration from which every job stays within 5 % of its time in isolation: medians with 95 % intervals, a dot a start; dots at the top never got there. A panel for each number "
    "of flows a job. Grey: fluid model (median). Last panel: share of starts that interleave, a dot a cell, means over cells."
)
OVERLAPPED = 0.051  # of an iteration: starts no further apart than this
STARTS = {"uniform": "random starts", "overlapped": "clustered starts"}
COLOURS = {  # by whether it is MLTCP, and start
    (True, "uniform"): (drawing.MLTCP, "o"), (True, "overlapped"): (style.JOBS[4], "s"), (False, "uniform"): (drawing.BASE, "D"),
    (False, "overlapped"): (style.JOBS[5], "^"),
}  # fmt: skip
CELL = ["jobs", "flows", "start", "mltcp"]
COLUMNS = 3


def draw(study: Study, out: Path) -> list[Path]:
    """Write ``convergence.{png,pdf,csv}``."""
    if not study.experiments:
        return []
    table = _table(study)
    starts = table.groupby(["jobs", "flows", "start"])["seed"].nunique()
    note = f"{drawing.setting(study.runs[0])}; jobs that need 96 % of the link together; {starts.min()} to {starts.max()} starts (seeds) a cell."
    return redrawing.publish(plot, {ID: table}, note, out)


def plot(tables: Tables) -> Any:
    """A panel for each number of flows, and one for the share of starts that interleave."""
    table = tables[ID]
    flows = sorted(table["flows"].unique())
    lines = -(-(len(flows) + 1) // COLUMNS)
    figure, axes = style.new_figure(lines, COLUMNS, figsize=(12.5, 0.8 + 3.5 * lines))
    jobs, never = sorted(table["jobs"].unique()), 1.08 * float(table["iterations"].max())
    for axis, number in zip(axes.ravel(), flows, strict=False):
        _by_number(axis, table[table["flows"] == number], jobs, never)
        axis.set_title(f"{drawing.count(int(number), 'flow')} a job")
    for axis in axes[:, 0]:
        axis.set_ylabel("iterations until interleaved")
    shares = axes.ravel()[len(flows)]
    _shares(shares, table)
    for axis in axes.ravel()[len(flows) + 1 :]:
        axis.set_axis_off()
    figure.legend(*axes[0, 0].get_legend_handles_labels(), loc="outside upper center", ncols=5, fontsize=9)
    return figure


def _table(study: Study) -> pd.DataFrame:
    """One row per run: ``jobs, flows, start, cc, mltcp, seed, at, twin``; iterations, infinity is never."""
    rows = []
    for experiment in study.experiments:
        for cc in experiment.systems:
            runs = experiment.runs_of(cc)
            ideals = measured.ideals_s(runs[0])
            model = fluid_comparison.flows(runs, 0.5).interleaved_at(ideals)
            rows += [
                {
                    "jobs": len(run.jobs), "flows": max(job.channels for job in run.jobs), "start": _start(run), "cc": run.system, "mltcp": run.role == "treatment", "seed": run.seed,
                    "at": measured.interleaved_at(experiment, run), "twin": model[number], "iterations": run.jobs[0].iterations,
                }
                for number, run in enumerate(runs)
            ]  # fmt: skip
    columns = ["jobs", "flows", "start", "cc", "mltcp", "seed", "at", "twin", "iterations"]
    return pd.DataFrame(rows, columns=columns).sort_values(
        ["jobs", "flows", "start"], ascending=[True, True, False], kind="stable"
    )


def _start(run: Run) -> str:
    offsets = [job.offset_ns / 1e9 for job in run.jobs]
    return "overlapped" if max(offsets) - min(offsets) <= OVERLAPPED * measured.ideal_s(run) else "uniform"


def _by_number(axis: Any, table: pd.DataFrame, jobs: list[int], never: float) -> None:
    for i, ((mltcp, start), (colour, marker)) in enumerate(COLOURS.items()):
        for x, number in enumerate(jobs):
            own = (table["jobs"] == number) & (table["mltcp"] == mltcp) & (table["start"] == start)
            rows = table[own].dropna(subset="at")
            at = x + (i - (len(COLOURS) - 1) / 2) * 0.2
            if len(rows):
                drawing.medians(axis, at, list(rows["at"]), never, colour, width=0.16, marker=marker)
            if mltcp and len(rows) and (model := statistics.median(rows["twin"]).value) < inf:
                axis.plot(at, model, "_", color=style.REFERENCE, markersize=13, markeredgewidth=2, zorder=2)
    for (mltcp, start), (colour, marker) in COLOURS.items():
        axis.plot([], [], marker, color=colour, label=f"{'MLTCP' if mltcp else 'base'}, {STARTS[start]}")
    axis.plot([], [], "_", color=style.REFERENCE, markersize=11, markeredgewidth=2, label="fluid model")
    axis.axhline(never, color=style.REFERENCE, linewidth=0.6, linestyle=":")
    axis.annotate(
        "never",
        (0, never),
        xycoords=("axes fraction", "data"),
        xytext=(3, 5),
        textcoords="offset points",
        fontsize=8,
        color=style.REFERENCE,
    )
    axis.set_xticks(range(len(jobs)), [str(number) for number in jobs])
    axis.grid(visible=False, axis="x")
    axis.set(xlabel="jobs", xlim=(-0.5, len(jobs) - 0.5), ylim=(0, 1.14 * never))


def _shares(axis: Any, table: pd.DataFrame) -> None:
    """The share of each cell's starts that interleave within the run, and the mean over cells: none counts for having more seeds."""
    known = table.dropna(subset="at")
    cells = np.isfinite(known["at"]).groupby([known[key] for key in CELL]).mean().rename("share").reset_index()
    names = []
    for x, ((mltcp, start), (colour, _)) in enumerate(COLOURS.items()):
        mine = cells[(cells["mltcp"] == mltcp) & (cells["start"] == start)]["share"]
        drawing.seeds(axis, x, list(mine), colour, width=0.5, ratios=False)
        names.append(f"{'MLTCP' if mltcp else 'base'}\n{STARTS[start].split()[0]}\n{drawing.count(len(mine), 'cell')}")
    axis.set_xticks(range(len(names)), names, fontsize=8)
    axis.yaxis.set_major_formatter(PercentFormatter(1.0))
    axis.grid(visible=False, axis="x")
    axis.set(title="Starts that interleave", ylim=(-0.04, 1.04))

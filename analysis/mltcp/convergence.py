"""From any start, with any number of jobs: how many iterations until all are interleaved."""

from __future__ import annotations

from math import inf
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.ticker import MaxNLocator, PercentFormatter

from testbed.core.runs import measured
from testbed.core.runs.load import Run
from testbed.models import statistics
from testbed.report import drawing, fluid_comparison, style
from testbed.report.study import Study

ID = "convergence"
POSITION = 130
TITLE = "How many iterations it takes, by number of jobs and start"
TEXT = (
    "Jobs that just fit on the link (96 % of it), begun anywhere in an iteration or, the hard case, all within 5 % of one. Left, the first "
    "iteration from which every job stays within 5 % of its time alone: one dot a start, the bar is the median, its line the 95 % interval; "
    "dots at the top never got there in this run. Diamonds: the median of the fluid twin for the same starts (shares ∝ √F). "
    "Right, the share of random starts that are interleaved from an iteration on; the base, which knows of no iterations: what it reaches is luck."
)
OVERLAPPED = 0.051  # of an iteration: starts no further apart than this
STARTS = {"uniform": "begun anywhere", "overlapped": "begun together"}
COLOURS = {  # by whether it is MLTCP, and start
    (True, "uniform"): drawing.MLTCP, (True, "overlapped"): style.JOBS[4], (False, "uniform"): drawing.BASE,
    (False, "overlapped"): style.JOBS[5],
}  # fmt: skip
BELOW: dict[str, Any] = {"fontsize": 8, "ncols": 3, "loc": "upper center", "bbox_to_anchor": (0.5, -0.17)}
LINES = ("-", "--", ":", "-.")  # of numbers of jobs


def draw(study: Study, out: Path) -> list[Path]:
    """Write ``convergence.{png,pdf,csv}``."""
    if not study.experiments:
        return []
    table = _table(study)
    figure, axes = style.new_figure(1, 2, figsize=(13.0, 5.2), width_ratios=(1.25, 1))
    _by_number(axes[0, 0], table)
    _by_iteration(axes[0, 1], table)
    counts = ", ".join(
        f"{rows['seed'].nunique()} {STARTS[str(start)]}" for start, rows in table.groupby("start", sort=False)
    )
    drawing.caption(figure, f"{drawing.setting(study.runs[0])}; starts (seeds) per number of jobs, at most: {counts}")
    return drawing.save(figure, table, out, ID)


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


def _by_number(axis: Any, table: pd.DataFrame) -> None:
    sizes = sorted({(int(jobs), int(flows)) for jobs, flows in zip(table["jobs"], table["flows"], strict=True)})
    kinds = [(mltcp, start) for mltcp in (True, False) for start in STARTS]
    kinds = [(m, s) for m, s in kinds if ((table["mltcp"] == m) & (table["start"] == s)).any()]
    never = 1.08 * float(table["iterations"].max())
    for i, (mltcp, start) in enumerate(kinds):
        colour = COLOURS[mltcp, start]
        label: str | None = f"{table[table['mltcp'] == mltcp]['cc'].iloc[0]}, {STARTS[start]}"
        for x, (number, flows) in enumerate(sizes):
            own = (table["jobs"] == number) & (table["flows"] == flows) & (table["mltcp"] == mltcp)
            rows = table[own & (table["start"] == start)].dropna(subset="at")
            if rows.empty:
                continue
            at = x + (i - (len(kinds) - 1) / 2) * 0.85 / len(kinds)
            drawing.medians(axis, at, list(rows["at"]), never, colour, width=0.7 / len(kinds), label=label)
            label = None
            if mltcp and (model := statistics.median(rows["twin"]).value) < inf:
                axis.plot(at, model, "D", color=style.REFERENCE, fillstyle="none", markersize=6, zorder=5)
    axis.plot([], [], "D", color=style.REFERENCE, fillstyle="none", markersize=6, label="fluid twin, shares ∝ √F")
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
    axis.set_xticks(range(len(sizes)), [str(jobs) if flows == 1 else f"{jobs}\n× {flows}" for jobs, flows in sizes])
    axis.grid(visible=False, axis="x")
    axis.set(
        xlabel="jobs (× flows of each)", ylabel="iterations until interleaved", ylim=(0, 1.12 * never), title="How soon"
    )
    axis.legend(**BELOW)


def _by_iteration(axis: Any, table: pd.DataFrame) -> None:
    rows = table[(table["start"] == "uniform") & table["at"].notna()]
    last = float(rows["iterations"].max()) if len(rows) else 1.0
    for line, (number, group) in zip(LINES, rows.groupby("jobs"), strict=False):
        for mltcp in (True, False):
            of_one = group[group["mltcp"] == mltcp]
            at = np.sort(of_one["at"])
            if len(at):
                shares = np.arange(1, len(at) + 1) / len(at)
                inside = at < inf
                x = [0, *at[inside], last]
                y = [0, *shares[inside], shares[inside][-1] if inside.any() else 0]
                axis.step(
                    x,
                    y,
                    where="post",
                    color=COLOURS[mltcp, "uniform"],
                    linestyle=line,
                    linewidth=1.8,
                    label=f"{of_one['cc'].iloc[0]}, {drawing.count(number, 'job')} ({len(at)} starts)",
                )
    axis.yaxis.set_major_formatter(PercentFormatter(1.0))
    axis.xaxis.set_major_locator(MaxNLocator(integer=True))
    axis.set(xlabel="iteration", ylabel="random starts interleaved by then", ylim=(-0.02, 1.03), title="How many")
    if axis.lines:
        axis.legend(**BELOW)

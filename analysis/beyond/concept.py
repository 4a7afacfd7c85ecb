"""Fig. 3 of the paper: what happens inside one iteration."""

from __future__ import annotations

from math import inf
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from testbed.core.runs import metrics
from testbed.core.runs.load import Experiment, LoadError, Run
from testbed.models.fluid import MLTCP_ACTIVE_FROM
from testbed.report import added_lines, drawing, exponent, fluid_comparison, style
from testbed.report.study import Study

ID = "concept"
POSITION = 20
TITLE = "F follows the bytes sent, and the job that is ahead gets more of the link"
TEXT = (
    "Left, one iteration in which two jobs overlap (first seed): the share of its bytes that each flow has sent, F, congestion window, and throughput. "
    "Right, all seeds: F as the kernel reports it against S·r + I, and how two sending jobs share the link against the ratio of their F (lines: shares ∝ F "
    "and ∝ √F)."
)
SHOWN = MLTCP_ACTIVE_FROM + 1
BIN = 250


def draw(study: Study, out: Path) -> list[Path]:
    """Write ``concept.{png,pdf,csv}``."""
    runs = _runs(study)
    if not runs:
        return []
    figure, axes = style.new_figure(1, 2, figsize=(12.0, 8.0), width_ratios=(1.5, 1))
    grid = axes[0, 0].get_gridspec()
    for axis in axes[0]:
        axis.remove()
    left = grid[0].subgridspec(4, 1, height_ratios=(1, 1, 1, 1.25)).subplots(sharex=True)
    table = _iteration(left, runs[0])
    upper, lower = grid[1].subgridspec(2, 1).subplots()
    _rule(upper, runs)
    _shares(lower, runs)
    drawing.caption(
        figure,
        f"{drawing.setting(runs[0])}; {runs[0].system}; {drawing.count(len(runs), 'seed')}, left: seed {runs[0].seed}, iteration {SHOWN}",
    )
    tables = {f"{ID}-rule": pd.DataFrame(map(_find_rule, runs)), f"{ID}-ahead": _ahead(runs), f"{ID}-lines": _lines()}
    return [*drawing.save(figure, table, out, ID), *drawing.write_tables(tables, out)]


def _lines() -> pd.DataFrame:
    """Counted, not measured: ``base, what, lines``, and an interval without width."""
    bases = {name: base for name, base in added_lines.BASES.items() if base != "DCTCP"}
    counts = {"added": added_lines.added, "executed": added_lines.executed}
    rows = [
        {"base": base, "what": what, "lines": count(name)}
        for name, base in bases.items()
        for what, count in counts.items()
    ]
    return pd.DataFrame(rows).assign(low=lambda rows: rows["lines"], high=lambda rows: rows["lines"], seeds=0)


def _ahead(runs: list[Run]) -> pd.DataFrame:
    """``seed, ahead, exponent``: what the flow with the larger F gets of the link, and p of shares ∝ F^p; no rows where jobs never overlap."""
    found = []
    for run in runs:
        rows = exponent.together(run)
        rows = rows[rows["force"].abs() > 0]
        if len(rows) >= exponent.FEWEST:
            ahead = np.where(rows["force"] > 0, rows["share"], 1 - rows["share"])
            found.append({"seed": run.seed, "ahead": float(ahead.mean()), "exponent": exponent.slope(rows)})
    return pd.DataFrame(found, columns=["seed", "ahead", "exponent"])


def _find_rule(run: Run) -> dict[str, float]:
    """How far F is off the rule at most (``off``), which share of its range it goes through (``spanned``), and in how many samples."""
    curve = fluid_comparison.curve(run)
    phases = metrics.phases(run.iterations)
    known = run.flows.dropna(subset="mltcp_r")
    known = known[known["t_s"] >= phases.loc[phases["iteration"] >= MLTCP_ACTIVE_FROM, "begin_s"].min()]
    if known.empty:
        return {"seed": run.seed, "off": inf, "spanned": 0.0, "samples": 0}
    ends = curve([0.0, 1.0])
    spanned = float(known["mltcp_f"].max() - known["mltcp_f"].min()) / max(float(np.ptp(ends)), 1e-9)
    off = float((known["mltcp_f"] - curve(known["mltcp_r"])).abs().max())
    return {"seed": run.seed, "off": off, "spanned": min(1.0, spanned), "samples": len(known)}


def _runs(study: Study) -> list[Run]:
    experiments: list[Experiment] = [
        experiment for experiment in study.experiments if "treatment" in experiment.roles.values()
    ]
    if not experiments:
        return []
    cc = next(cc for cc, role in experiments[0].roles.items() if role == "treatment")
    return [run for run in experiments[0].runs_of(cc) if len(run.jobs) == 2 and "mltcp_f" in run.flows]


def _iteration(axes: Any, run: Run) -> pd.DataFrame:
    phases = metrics.phases(run.iterations)
    mine = phases[phases["iteration"] == SHOWN]
    if mine.empty:
        raise LoadError(f"{run.path}: has no iteration {SHOWN} to show; it takes at least {SHOWN + 1}")
    begin, end = float(mine["begin_s"].min()), float(mine["end_s"].max())
    margin = 0.06 * (end - begin)
    columns = {"mltcp_r": "bytes_ratio r", "mltcp_f": "F(r)", "cwnd_segments": "congestion\nwindow (segments)"}
    parts = []
    for job, flow in exponent.busiest(run).items():
        rows = flow[flow["t_s"].between(begin - margin, end + margin)]
        parts.append(rows[["t_s", "job", *columns]])
        phase = mine[mine["job"] == job].iloc[0]
        busy = rows["t_s"].between(phase["begin_s"], phase["end_s"])
        for axis, column in zip(axes, columns, strict=False):
            axis.plot(rows["t_s"] - begin, rows[column], color=style.JOBS[job], linewidth=1, alpha=0.25)
            axis.plot(
                rows["t_s"][busy] - begin, rows[column][busy], color=style.JOBS[job], linewidth=1.8, label=f"job {job}"
            )
    for axis, label in zip(axes, columns.values(), strict=False):
        axis.set_ylabel(label)
    unit, divisor = ("Gbit/s", 1e9) if run.rate_bps >= 5e9 else ("Mbit/s", 1e6)
    rates = metrics.throughput(run.flows, exponent.WINDOW_S)
    rates = rates[(rates.index > begin - margin) & (rates.index < end + margin)]
    axes[3].stackplot(
        rates.index - begin,
        *(rates[job] / divisor for job in rates),
        colors=style.JOBS[: len(rates.columns)],
        step="mid",
        linewidth=0,
    )
    axes[3].axhline(run.rate_bps / divisor, color=style.REFERENCE, linewidth=0.8, linestyle="--")
    axes[3].set_ylabel(f"goodput\n(stacked, {unit})")
    axes[3].set_xlabel("time since the first job of the two began to communicate (s)")
    for axis in axes:
        axis.set_xlim(-margin, end - begin + margin)
    axes[0].set_title(f"One iteration of two jobs: {run.system}")
    axes[0].legend(loc="lower right", ncols=2)
    return pd.concat(parts)


def _rule(axis: Any, runs: list[Run]) -> None:
    for run in runs:
        known = run.flows.dropna(subset="mltcp_r")
        known = known[known["mltcp_f"] != 1].sort_values("mltcp_r")
        axis.plot(
            known["mltcp_r"][::20],
            known["mltcp_f"][::20],
            "o",
            markersize=3,
            markeredgewidth=0,
            alpha=0.25,
            color=style.JOBS[0],
        )
    r = np.linspace(0, 1, 50)
    curve = fluid_comparison.curve(runs[0])
    axis.plot(
        r,
        curve(r),
        color=style.REFERENCE,
        linewidth=1.2,
        linestyle="--",
        label=f"{curve.slope:g} r + {curve.intercept:g}",
    )
    axis.plot([], [], "o", color=style.JOBS[0], markersize=4, label="kernel (every 20th sample)")
    axis.set(xlabel="bytes_ratio r", ylabel="F", title="F computed by the kernel")
    axis.legend(loc="upper left")


def _shares(axis: Any, runs: list[Run]) -> None:
    rows = pd.concat([exponent.together(run) for run in runs]).sort_values("force")
    x = np.exp(np.linspace(-2.1, 2.1, 3))
    axis.plot(x, x, color=style.REFERENCE, linewidth=1, linestyle="--", label="shares ∝ F")
    axis.plot(x, np.sqrt(x), color=style.REFERENCE, linewidth=1, linestyle=":", label="shares ∝ √F")
    size = min(BIN, max(5, len(rows) // 12))
    for at in range(0, len(rows) - size + 1, size):
        part = rows.iloc[at : at + size]
        share = part["share"].mean()
        axis.plot(
            np.exp(part["force"].mean()),
            share / (1 - share),
            "o",
            color=style.JOBS[0],
            markersize=5,
            markeredgewidth=0,
            alpha=0.8,
        )
    axis.plot(
        [],
        [],
        "o",
        color=style.JOBS[0],
        markersize=5,
        label=f"measured, {size} windows of {exponent.WINDOW_S * 1e3:g} ms each",
    )
    axis.set(
        xscale="log",
        yscale="log",
        xlabel="F of job 1 ÷ F of job 0",
        ylabel="goodput of job 1 ÷ of job 0",
        title="Shares of the link",
    )
    ticks = [0.125, 0.25, 0.5, 1, 2, 4, 8]
    for which in (axis.xaxis, axis.yaxis):
        which.set_major_locator(FixedLocator(ticks))
        which.set_minor_locator(NullLocator())
        which.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axis.legend(loc="upper left")

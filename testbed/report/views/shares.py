"""Shares of two flows with constant F on one link, compared with theory.

With slope 0, F is a constant weight of additive increase. If losses are independent, a flow's share is proportional to
the root of F. If flows lose packets at the same time, it is proportional to F (AIMD; Chiu and Jain, 1989). A real queue
is between the two. Drawn for experiments whose congestion controls are pairs ``a:…+b:…`` with slope 0.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.ticker import FixedLocator, NullLocator, ScalarFormatter

from testbed.core.runs import metrics
from testbed.core.runs.load import Experiment, Run
from testbed.core.text import decimal
from testbed.models.statistics import log_interval
from testbed.report import drawing, style

ONE = 1024  # F in manifests


def draw(experiment: Experiment, out: Path) -> list[Path]:
    """Write ``shares.{png,pdf,csv}`` to ``out``; nothing if F is not constant."""
    rows = [row for run in experiment.runs if (row := _row(run)) is not None]
    if len(rows) < len(experiment.runs):
        return []
    data = pd.DataFrame(rows)
    figure, axes = style.new_figure(1, 1, figsize=(6.0, 5.4))
    axis = axes[0, 0]
    weights = np.geomspace(data["weight"].min() / 1.3, data["weight"].max() * 1.3, 50)
    axis.fill_between(weights, np.sqrt(weights), weights, color=style.REFERENCE, alpha=0.08, linewidth=0)
    axis.plot(weights, weights, color=style.REFERENCE, linewidth=1, linestyle="--", label="F (losses together)")
    axis.plot(weights, np.sqrt(weights), color=style.REFERENCE, linewidth=1, linestyle=":", label="√F (losses apart)")
    for colour, (name, rows_of_one) in zip(style.JOBS, data.groupby("cc", sort=False), strict=False):
        _series(axis, rows_of_one, str(name), colour)
    _log_scales(axis, sorted(data["weight"].unique()))
    axis.set_xlabel("F of the second flow ÷ F of the first")
    axis.set_ylabel("bytes of the second flow ÷ bytes of the first")
    axis.set_title("Shares of two flows with constant F")
    axis.legend()
    figure.text(0.01, -0.01, _caption(experiment.runs[0], data), va="top", fontsize=8, color=style.REFERENCE)
    drawing.write_table(data, out / "shares.csv")
    return [*style.save(figure, out / "shares"), out / "shares.csv"]


def _row(run: Run) -> dict[str, Any] | None:
    factors = [run.constants(job.cc.spec) for job in run.jobs]
    if len(factors) != 2 or any(factor.get("slope") != 0 for factor in factors):
        return None
    carried = metrics.carried(run.flows)
    if len(carried) < 2 or not carried.all():  # too few samples to decide
        return None
    return {
        "cc": run.jobs[1].cc.name, "seed": run.seed, "weight": factors[1]["intercept"] / factors[0]["intercept"],
        "ratio": carried[1] / carried[0],
    }  # fmt: skip


def _series(axis: Any, rows: pd.DataFrame, name: str, colour: str) -> None:
    """Mean over seeds on a logarithmic scale, with its interval where there are three."""
    by_weight = rows.groupby("weight")["ratio"]
    means = by_weight.apply(lambda ratios: float(np.exp(np.log(ratios).mean())))
    axis.plot(means.index, means, color=colour, marker="o", markersize=5, linewidth=1.2, label=name)
    for weight, ratios in by_weight:
        if interval := log_interval(ratios):
            axis.plot([weight, weight], interval, color=colour, linewidth=3, alpha=0.35, solid_capstyle="butt")


def _log_scales(axis: Any, ticks: list[float]) -> None:
    for which in (axis.xaxis, axis.yaxis):
        getattr(axis, f"set_{which.axis_name}scale")("log")
        which.set_major_locator(FixedLocator(ticks))
        which.set_minor_locator(NullLocator())
        which.set_major_formatter(ScalarFormatter())


def _caption(run: Run, data: pd.DataFrame) -> str:
    network = drawing.link_rate(run)
    if not drawing.is_model(run):
        network += f", {drawing.queue(run)}{drawing.wires(run)}, base RTT {decimal(run.plan.base_rtt_s * 1e3, 2)} ms"
    return f"{network}; {drawing.backend(run)}; {drawing.count(data['seed'].nunique(), 'seed')}, intervals at 95 %."

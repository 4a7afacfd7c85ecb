"""Shares of jobs on the busiest bottlenecks over the complete run: a panel for each link, a bar for each system."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from testbed.core.runs import metrics
from testbed.core.runs.load import Experiment, Run
from testbed.models import bottleneck
from testbed.report import drawing, style
from testbed.report.views import panels

_MOST_LINKS = 4  # in the drawing; the CSV has all


def draw(experiment: Experiment, out: Path) -> list[Path]:
    """Write ``link-shares.{png,pdf,csv}`` to ``out``; nothing if the flows on each link are unknown."""
    if any(bottleneck.crossings(run) is None for run in experiment.runs):
        return []
    table = pd.concat([_shares(run) for run in experiment.runs], ignore_index=True)
    if table.empty:
        return []
    means = table.groupby(["link", "system", "job"])["percent"].mean()
    used = means.groupby(["link", "system"]).sum().groupby("link").max()
    links = list(used.sort_values(ascending=False, kind="stable").index)
    shown, runs = links[:_MOST_LINKS], panels.first_runs(experiment)
    high = 0.34 * len(experiment.systems)
    width = max(4.2 * len(shown), 7.0)
    figure, axes = style.new_figure(1, len(shown), figsize=(width, 1.6 + high), sharey=True, sharex=True)
    for axis, link in zip(axes[0], shown, strict=True):
        for place, system in enumerate(experiment.systems):
            left = 0.0
            for job, percent in means[link].get(system, pd.Series(dtype=float)).items():
                axis.barh(
                    place,
                    percent,
                    left=left,
                    height=0.72,
                    color=panels.colour(job),
                    edgecolor="white",
                    linewidth=0.6,
                )
                left += percent
            axis.annotate(
                f"{left:.0f} %", (left, place), xytext=(3, 0), textcoords="offset points", va="center", fontsize=8,
                color=style.REFERENCE,
            )  # fmt: skip
        axis.set_title(panels.arrow(link))
        axis.set_yticks(range(len(experiment.systems)), experiment.systems)
        axis.set_xlim(0, 112)
        axis.set_xticks(range(0, 101, 25))
        axis.set_xlabel("share of the link's rate (%)")
        axis.grid(axis="y", visible=False)
    axes[0, 0].invert_yaxis()
    panels.legend(figure, "Link shares", panels.share_patches(runs[0]))
    which = (
        f" The {len(shown)} busiest of {len(links)} directions; the others are in link-shares.csv."
        if len(links) > len(shown)
        else ""
    )
    seeds = drawing.count(len({run.seed for run in experiment.runs}), "seed")
    panels.caption(
        figure, runs,
        f"What each job sends over a direction of a bottleneck, headers included, from the first to the last iteration of the run. Means over {seeds}.{panels.rest(runs[0])}{which}",
    )  # fmt: skip
    return drawing.save(figure, table, out, "link-shares")


def _shares(run: Run) -> pd.DataFrame:
    """A row for each direction of a bottleneck and each job that crosses it, and for background traffic."""
    window_s = max(float(metrics.pooled(run.times).mean()) / 10, 2 * run.plan.sample_ns / 1e9)
    parts = []
    for link, flows in (bottleneck.crossings(run) or {}).items():
        if flows:
            means = bottleneck.carried(run, link, window_s).mean()
            percent = 100 * means / bottleneck.rate_bps(run, link)
            parts.append(
                pd.DataFrame(
                    {
                        "system": run.system,
                        "seed": run.seed,
                        "link": link,
                        "job": percent.index,
                        "percent": percent.to_numpy(),
                    }
                )
            )
    return pd.concat(parts, ignore_index=True) if parts else pd.DataFrame()

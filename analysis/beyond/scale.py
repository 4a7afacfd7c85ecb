"""How much of the base's steady state is luck: loss cycles per communication phase, 100 Mbit/s to 50 Gbit/s."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
from scipy import stats

from testbed.core.runs import measured
from testbed.core.runs.load import Run
from testbed.models.frames import frame
from testbed.models.statistics import log_interval
from testbed.report import drawing, redrawing, style
from testbed.report import observations as observed
from testbed.report.figures import Tables
from testbed.report.study import Study

ID = "scale"
POSITION = 110
TITLE = "Small emulations flatter the base: it interleaves by chance where a phase holds few loss cycles"
TEXT = (
    "Two jobs, a panel for each level of compute noise, a column of dots for each link (rate by shape, buffer by position), a dot a seed. Exactly fair "
    "sharing keeps any offset. The fewer loss cycles a communication phase holds, the more the base interleaves without MLTCP (towards 1). MLTCP's steady "
    "state should not depend on them."
)
MARKERS = "osD^vP*X"


def draw(study: Study, out: Path) -> list[Path]:
    """Write ``scale.{png,pdf,csv}``; the data: a row per run."""
    compared, _ = observed.compared(study)
    table = compared.assign(cycles=[loss_cycles(run) for run in study.runs])
    note = (
        f"Two jobs, together {table['load'].iloc[0]:.0%} of the link, clustered starts; {drawing.count(table['seed'].nunique(), 'seed')}; "
        f"{drawing.backend(study.runs[0])}.\n"
        "Loss cycles are computed from buffer and rate (two Reno flows, losses together, no delay). Bars: 95 % intervals, cut at the edge."
    )
    return redrawing.publish(plot, {ID: table, f"{ID}-drift": _drift(table)}, note, out)


def plot(tables: Tables) -> Any:
    """Iteration times over loss cycles, a panel for each level of noise."""
    table = tables[ID]
    pair = observed.pair(observed.roles(table))
    assert pair is not None
    noises = sorted(table["noise"].unique(), key=lambda text: float(text.rstrip("%")))
    rates = sorted(table["rate_bps"].unique())
    figure, axes = style.new_figure(1, len(noises), figsize=(1.2 + 5.4 * len(noises), 4.6), sharey=True)
    for axis, noise in zip(axes[0], noises, strict=True):
        rows = table[table["noise"] == noise]
        for cc in pair:
            of_cc = rows[rows["cc"] == cc]
            for rate, of_rate in of_cc.groupby("rate_bps"):
                axis.plot(of_rate["cycles"], of_rate["settled"], MARKERS[rates.index(rate) % len(MARKERS)], markersize=4, markeredgewidth=0,
                          color=drawing.colour(treatment=cc == pair[1]), alpha=0.45)  # fmt: skip
            means = of_cc.groupby("experiment")[["cycles", "settled"]].mean().sort_values("cycles")
            axis.plot(
                means["cycles"],
                means["settled"],
                linewidth=1.6,
                color=drawing.colour(treatment=cc == pair[1]),
                label=cc,
            )
            _intervals(axis, of_cc, drawing.colour(treatment=cc == pair[1]))
        for rate in rates:
            axis.plot(
                [], [], MARKERS[rates.index(rate) % len(MARKERS)], color=style.REFERENCE, label=drawing.rate(rate)
            )
        duty = float(table["load"].iloc[0]) / 2
        axis.axhline(1 + duty, color=style.REFERENCE, linewidth=1, linestyle=":")
        axis.annotate(
            "fair, full overlap",
            (0.01, 1 + duty),
            xycoords=("axes fraction", "data"),
            va="bottom",
            fontsize=8,
            color=style.REFERENCE,
        )
        axis.axhline(1, color=style.REFERENCE, linewidth=0.8, linestyle="--")
        drawing.plain_log(axis.xaxis)
        axis.set_ylim(
            min(0.97, 0.98 * float(table["settled"].min())), max(1.06 + duty, 1.02 * float(table["settled"].max()))
        )
        axis.set_xlabel("loss cycles per overlapped communication phase")
        axis.set_title(f"compute noise {noise}")
    axes[0, 0].set_ylabel("iteration time ÷ ideal, steady state")
    handles, labels = axes[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper center", ncols=len(labels), fontsize=9)
    return figure


def _drift(table: pd.DataFrame) -> pd.DataFrame:
    """``noise, seed, rho``: Spearman's rank correlation over links of loss cycles and the base's settled time, of three links or more."""
    base = table[table["role"] == "baseline"].groupby(["noise", "seed"], sort=False)
    rows = [{"noise": noise, "seed": seed, "rho": _rank_correlation(of)} for (noise, seed), of in base if len(of) > 2]
    return pd.DataFrame(rows, columns=["noise", "seed", "rho"])


def _rank_correlation(rows: pd.DataFrame) -> float:
    """0 if either is the same everywhere."""
    if rows["cycles"].nunique() < 2 or rows["settled"].nunique() < 2:
        return 0.0
    return float(stats.spearmanr(rows["cycles"], rows["settled"]).statistic)


def loss_cycles(run: Run) -> float:
    """Reno's loss cycles in a communication phase that two jobs share from beginning to end; computed, not measured.

    Without delay the queue is all there is: each of two flows has half of it in flight when it overflows, halves that, and
    grows by a segment a round trip, which takes three quarters of a full queue in the mean.
    """
    link = run.plan.link
    queue_s = link.buffer_bytes * 8 / link.rate_bps
    round_trips = link.buffer_bytes / frame(link.mtu) / 4
    phase_s = 2 * observed.duty(run, 0) * measured.ideals_s(run)[0]
    return float(phase_s / (round_trips * 0.75 * queue_s))


def _intervals(axis: Any, rows: pd.DataFrame, colour: str) -> None:
    for _, of_point in rows.groupby("experiment"):
        if found := log_interval(list(of_point["settled"])):
            axis.vlines(of_point["cycles"].iloc[0], *found, color=colour, linewidth=3, alpha=0.4)

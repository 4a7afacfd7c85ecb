"""Hosts as they are: what interfaces of the links' rate, queues, marks and the least timeout make of base and MLTCP."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.colors import TwoSlopeNorm

from testbed.core.runs import measured
from testbed.core.runs.load import Experiment, LoadError, Run
from testbed.models.statistics import geometric_mean
from testbed.report import drawing, style
from testbed.report import observations as observed
from testbed.report.study import Study
from testbed.report.views import mechanism

ID = "edges"
POSITION = 120
TITLE = "Hosts as they are: where MLTCP gains behind interfaces of the links' rate"
TEXT = (
    "Four jobs that need 96 % of a link, hosts with interfaces of the link's rate. Each cell: last ten iterations ÷ ideal, base → MLTCP, and "
    "below it the timeouts of both. Blue is a gain, red a harm. A queue that drops and is short lets timeouts decide, a deep one leaves F "
    "nothing to act on; one that marks does neither. Below, the cell in which MLTCP is slowest against its base, under the base and under MLTCP: the last "
    "iterations of the first seed, each job's window, what waits in its own NIC and before the link, and what it sends again. The data hold more of each "
    "run: how far apart jobs start, what a job that begins beside others resends in its first tenth, and how far phases drift in an iteration."
)
WITHIN, LAST = 0.03, 10


def draw(study: Study, out: Path) -> list[Path]:
    """Write ``edges.{png,pdf,csv}``; the data: a row per run."""
    table = _table(study)
    rates, timeouts = sorted(table["rate_bps"].unique()), sorted(table["rto_ms"].unique(), reverse=True)
    height = 0.6 + 3.2 * len(rates)
    figure, axes = style.new_figure(1, 1, figsize=(1.6 + 5.6 * len(timeouts), height + 8.0))
    axes[0, 0].remove()
    above, below = figure.subfigures(2, 1, height_ratios=[height, 7.2])
    axes = above.subplots(len(rates), len(timeouts), squeeze=False)
    for row, rate in zip(axes, rates, strict=True):
        for axis, rto_ms in zip(row, timeouts, strict=True):
            _cells(axis, table[(table["rate_bps"] == rate) & (table["rto_ms"] == rto_ms)])
            axis.set_title(f"{drawing.rate(rate)}, least timeout {rto_ms:g} ms")
    for axis in axes[-1]:
        axis.set_xlabel("queue")
    _mechanism(below, study, table)
    drawing.caption(
        figure,
        f"{drawing.count(len(study.runs[0].jobs), 'job')}, {drawing.count(table['seed'].nunique(), 'seed')}; {drawing.backend(study.runs[0])}.",
        "Marks: from a fifth of the queue on.",
    )
    return drawing.save(figure, table, out, ID)


def _mechanism(figure: Any, study: Study, table: pd.DataFrame) -> None:
    """Of the cell in which MLTCP is slowest against its base the first seed, base and MLTCP, traced."""
    base, mltcp = (
        table[table["role"] == role].groupby("experiment")["last"].mean() for role in ("baseline", "treatment")
    )
    experiment = next(one for one in study.experiments if one.path.name == (mltcp / base).idxmax())
    runs = {role: next(run for run in experiment.runs if run.role == role) for role in ("baseline", "treatment")}
    axes = figure.subplots(len(mechanism.ROWS), len(runs), sharex=True, sharey="row", squeeze=False)
    cell = table[table["experiment"] == experiment.path.name]
    for column, run in enumerate(runs.values()):
        row = cell[(cell["cc"] == run.system) & (cell["seed"] == run.seed)].iloc[0]
        mechanism.draw(
            axes[:, column],
            run,
            f"{run.system}: {row['last']:.2f} × ideal, {drawing.count(int(row['timeouts']), 'timeout')}",
        )
    for axis, label in zip(axes[:, 0], mechanism.ROWS, strict=True):
        axis.set_ylabel(label)
    axes[0, 0].legend(fontsize=8, ncols=2)
    link = experiment.runs[0].plan.link
    queue_ms, marks = link.buffer_bytes * 8e3 / link.rate_bps, "marks" if link.ecn_threshold else "drops"
    figure.suptitle(
        f"Where MLTCP gains least or harms most: {drawing.rate(link.rate_bps)}, queue of {queue_ms:.2g} ms that {marks}, least timeout {experiment.runs[0].plan.rto_min_ms:g} ms"
    )


def _table(study: Study) -> pd.DataFrame:
    if not {"baseline", "treatment"} <= {run.role for run in study.runs}:
        raise LoadError(f"{ID}: there are no results of both a base and MLTCP; run experiments/{ID}.toml")
    return pd.DataFrame([_row(experiment, run) for experiment in study.experiments for run in experiment.runs])


def _row(experiment: Experiment, run: Run) -> dict[str, object]:
    link, control = run.plan.link, run.plan.system.congestion[0]
    return {
        "experiment": experiment.path.name, "cc": run.system, "role": run.role, "base": control.base or control.name, "seed": run.seed,
        "rate_bps": link.rate_bps, "buffer_ms": round(link.buffer_bytes * 8e3 / link.rate_bps, 2), "marks": link.ecn_threshold is not None,
        "rto_ms": run.plan.rto_min_ms,
        "last": float(observed.relative_times(experiment, run).tail(LAST).to_numpy().mean()),
        "timeouts": run.manifest.measured.counters.tcp_timeouts,
        "drops": int(run.links.groupby("link")["drops"].max().sum()),
        **_beginnings(run),
    }  # fmt: skip


def _beginnings(run: Run) -> dict[str, float]:
    """How jobs begin: ``starts`` (first to last start of the first phases ÷ ideal), ``newcomer_resent`` (segments that a job resends in the first
    tenth of an iteration which begins while another communicates, mean), ``drift`` (how far a phase moves against the first job's in an
    iteration, mean ÷ ideal)."""
    sending = run.iterations[run.iterations["bytes"] > 0]
    begun, ended = (
        sending.pivot_table(index="iteration", columns="job", values=one) for one in ("comm_start_s", "end_s")
    )
    ideal_s = measured.ideal_s(run)
    found = []
    for job in begun.columns:
        of = run.flows[run.flows["job"] == job].groupby("t_s")["retrans_segments"].sum()
        others = [column for column in begun.columns if column != job]
        for at in begun[job].dropna():
            if any(((begun[other] <= at) & (ended[other] > at)).any() for other in others):
                found.append(float(np.diff(np.interp([at, at + ideal_s / 10], of.index, of))[0]))
    apart = begun.sub(begun.iloc[:, 0], axis=0)
    return {
        "starts": float(begun.iloc[0].max() - begun.iloc[0].min()) / ideal_s,
        "newcomer_resent": float(np.mean(found)) if found else 0.0,
        "drift": float(apart.diff().abs().iloc[1:, 1:].to_numpy().mean()) / ideal_s,
    }


def _cells(axis: Any, rows: pd.DataFrame) -> None:
    kinds = sorted(
        {(base, bool(marks)) for base, marks in zip(rows["base"], rows["marks"], strict=True)},
        key=lambda kind: (not kind[1], kind[0]),
    )
    queues = sorted(rows["buffer_ms"].unique())
    means = dict(iter(rows.groupby(["base", "marks", "buffer_ms", "role"])[["last", "timeouts"]]))
    gains = np.full((len(kinds), len(queues)), np.nan)
    for y, kind in enumerate(kinds):
        for x, queue in enumerate(queues):
            both = [means.get((*kind, queue, role)) for role in ("baseline", "treatment")]
            found = [one for one in both if one is not None]
            if len(found) < len(both):
                continue
            base, other = (geometric_mean(one["last"]) for one in found)
            gains[y, x] = base / other
            axis.text(x, y - 0.12, f"{base:.2f} → {other:.2f}", ha="center", va="center", fontsize=11,
                      fontweight="bold" if other <= 1 + WITHIN else "normal")  # fmt: skip
            axis.text(
                x,
                y + 0.24,
                "timeouts " + ", ".join(f"{one['timeouts'].mean():.0f}" for one in found),
                ha="center",
                va="center",
                fontsize=8,
            )
    axis.imshow(gains, aspect="auto", cmap="RdBu", norm=TwoSlopeNorm(1.0, vmin=0.6, vmax=1.6), alpha=0.6)
    axis.set_xticks(range(len(queues)), [f"{queue:g} ms" for queue in queues])
    axis.set_yticks(range(len(kinds)), [f"{base}, {'marks' if marks else 'drops'}" for base, marks in kinds])
    axis.grid(visible=False)

"""Hosts as they are: what NICs at link rate, queues, marks and the minimum RTO make of base and MLTCP."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from testbed.core.runs import measured
from testbed.core.runs.load import Experiment, LoadError, Run
from testbed.models.statistics import log_interval
from testbed.report import drawing, redrawing, style
from testbed.report import observations as observed
from testbed.report.figures import Tables
from testbed.report.study import Study

ID = "edges"
POSITION = 120
ALL_BASES = True
TITLE = (
    "Behind NICs at link rate MLTCP gains on ECN-marking queues; short drop-tail queues and timeouts decide otherwise"
)
TEXT = (
    "Four jobs that need 96 % of a link. Last ten iterations of the base divided by MLTCP's (shaded: slower), over the size of the queue. Columns: bases; rows: rates. Full markers: minimum RTO 200 ms; "
    "open ones, to their right: 5 ms, the same run where nothing times out. Few seeds: indicative. The table counts timeouts and drops."
)
LAST = 10
KINDS = ((True, style.JOBS[0], "o", "-", "ECN-marking"), (False, style.JOBS[1], "s", "--", "drop-tail"))
LONG_MS = 200.0
SHADE = "#F3E3DC"  # slower than the base
TICKS = (0.8, 0.9, 1, 1.1, 1.2, 1.4, 1.7, 2)


def draw(study: Study, out: Path) -> list[Path]:
    """Write ``edges.{png,pdf,csv}``; the data: a row per run."""
    table = _table(study)
    note = (
        f"{drawing.count(len(study.runs[0].jobs), 'job')}, {drawing.count(table['seed'].nunique(), 'seed')}; {drawing.backend(study.runs[0])}. "
        "Marks: from a fifth of the queue on."
    )
    return redrawing.publish(plot, {ID: table}, note, out)


def plot(tables: Tables) -> Any:
    """A row a rate, a column a base: gains over the size of the queue."""
    gains = _gains(tables[ID])
    rates, bases = sorted(gains["rate_bps"].unique()), list(dict.fromkeys(gains["base"]))
    queues = sorted(gains["buffer_ms"].unique())
    figure, axes = style.new_figure(
        len(rates), len(bases), figsize=(1.6 + 2.7 * len(bases), 0.8 + 2.7 * len(rates)), sharex=True, sharey=True
    )
    low, high = 0.93 * gains["gain"].min(), 1.07 * gains["gain"].max()
    for line, rate in zip(axes, rates, strict=True):
        for axis, base in zip(line, bases, strict=True):
            here = gains[(gains["rate_bps"] == rate) & (gains["base"] == base)]
            for marks, colour, marker, dashes, _ in KINDS:
                _line(axis, here[here["marks"] == marks], queues, colour, marker, dashes)
            axis.axhline(1, color="black", linewidth=0.8)
            axis.axhspan(low / 2, 1, color=SHADE, zorder=0)
        line[0].set_ylabel(f"gain of the mean\n{drawing.rate(int(rate))}")
    for axis, base in zip(axes[0], bases, strict=True):
        axis.set_title(base)
    for axis in axes[-1]:
        axis.set_xlabel("queue (ms at link rate)")
    drawing.plain_log(axes[0, 0].yaxis)
    axes[0, 0].set_yticks(TICKS, [f"{tick:g}" for tick in TICKS])
    axes[0, 0].set_ylim(min(0.9, low), max(1.2, high))
    axes[0, 0].set_xticks(range(len(queues)), [f"{queue:g}" for queue in queues])
    for marks, colour, marker, dashes, name in KINDS:
        if (gains["marks"] == marks).any():
            axes[0, 0].plot([], [], marker=marker, linestyle=dashes, color=colour, label=f"{name} queue")
    figure.legend(*axes[0, 0].get_legend_handles_labels(), loc="outside upper center", ncols=2, fontsize=9)
    return figure


def _line(axis: Any, gains: pd.DataFrame, queues: list[float], colour: str, marker: str, dashes: str) -> None:
    """Means over seeds; the kernel's own minimum RTO joined by a line, a small one in open markers to the right."""
    for aside, long in ((-0.08, True), (0.08, False)):
        mine = gains[(gains["rto_ms"] >= LONG_MS) == long]
        means = {
            queues.index(float(str(queue))) + aside: list(values) for queue, values in mine.groupby("buffer_ms")["gain"]
        }
        centres = [float(np.exp(np.mean(np.log(values)))) for values in means.values()]
        axis.plot(
            list(means), centres, marker=marker, linestyle=dashes if long else "", color=colour, markersize=6,
            markerfacecolor=colour if long else "white", zorder=4,
        )  # fmt: skip
        for x, values in means.items():
            if ends := log_interval(values):
                axis.vlines(x, *ends, color=colour, linewidth=2, alpha=0.5)


def _gains(table: pd.DataFrame) -> pd.DataFrame:
    """The base's last iterations ÷ MLTCP's, by point and seed."""
    keys = ["base", "rate_bps", "marks", "rto_ms", "buffer_ms", "seed"]
    wide = table.pivot_table(index=keys, columns="role", values="last", sort=False)
    return (wide["baseline"] / wide["treatment"]).dropna().rename("gain").reset_index()


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

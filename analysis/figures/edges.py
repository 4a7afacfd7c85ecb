"""Hosts as they are: what interfaces of the links' rate, queues, marks and the least timeout make of base and MLTCP."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.colors import TwoSlopeNorm

from analysis import drawing, style
from analysis import observations as observed
from analysis.finding import Finding, graded, not_measured
from analysis.study import Study
from core.runs.load import Experiment, LoadError, Run
from theory.statistics import interval

ID = "edges"
TITLE = "Hosts as they are: where MLTCP gains behind interfaces of the links' rate"
TEXT = (
    "Four jobs that need 96 % of a link, hosts with interfaces of the link's rate. Each cell: last ten iterations ÷ ideal, base → MLTCP, and "
    "below it the timeouts of both. Blue is a gain, red a harm. A queue that drops and is short lets timeouts decide, a deep one leaves F "
    "nothing to act on; one that marks does neither."
)
CLAIM = "Behind interfaces of the links' rate MLTCP takes the ideal iteration time where links mark."
DROP_CLAIM = "Behind interfaces of the links' rate MLTCP takes the ideal iteration time where links drop."
SOURCE = "ours; the paper's own testbed has such interfaces [published]"
CONTROLS = dict.fromkeys((CLAIM, DROP_CLAIM), "iterations that take 1.4 times the ideal under every congestion control")
WITHIN, LAST = 0.03, 10
KEYS = ["rate_bps", "rto_ms", "base", "marks", "buffer_ms"]


def draw(study: Study, out: Path) -> list[Path]:
    """Write ``edges.{png,pdf,csv}``; the data: a row per run."""
    table = _table(study)
    rates, timeouts = sorted(table["rate_bps"].unique()), sorted(table["rto_ms"].unique(), reverse=True)
    figure, axes = style.new_figure(
        len(rates), len(timeouts), figsize=(1.6 + 5.6 * len(timeouts), 1.4 + 3.2 * len(rates))
    )
    for row, rate in zip(axes, rates, strict=True):
        for axis, rto_ms in zip(row, timeouts, strict=True):
            _cells(axis, table[(table["rate_bps"] == rate) & (table["rto_ms"] == rto_ms)])
            axis.set_title(f"{drawing.rate(rate)}, least timeout {rto_ms:g} ms")
    for axis in axes[-1]:
        axis.set_xlabel("queue")
    drawing.caption(
        figure,
        f"{len(study.runs[0].jobs)} jobs, {drawing.count(table['seed'].nunique(), 'seed')}; {drawing.substrate(study.runs[0])}.",
        "Marks: from a fifth of the queue on.",
    )
    return drawing.save(figure, table, out, ID)


def find(study: Study) -> list[Finding]:
    """Two findings: where links mark, and where they drop."""
    try:
        table = _table(study)
    except LoadError as error:
        return [not_measured(claim, SOURCE, str(error)) for claim in (CLAIM, DROP_CLAIM)]
    return [
        _ideal(study, claim, table[table["marks"] == marks]) for claim, marks in ((CLAIM, True), (DROP_CLAIM, False))
    ]


def _table(study: Study) -> pd.DataFrame:
    if not {"baseline", "treatment"} <= {run.role for run in study.runs}:
        raise LoadError(f"{ID}: there are no results of both a base and MLTCP; run experiments/{ID}.toml")
    return pd.DataFrame([_row(experiment, run) for experiment in study.experiments for run in experiment.runs])


def _row(experiment: Experiment, run: Run) -> dict[str, object]:
    link, control = run.plan.link, run.plan.system.congestion[0]
    return {
        "experiment": experiment.path.name, "cc": run.system, "role": run.role, "base": control.base or control.name, "seed": run.seed,
        "rate_bps": link.rate_bps, "buffer_ms": round(link.buffer_bytes * 8e3 / link.rate_bps, 2), "marks": link.marking is not None,
        "rto_ms": run.plan.rto_min_ms,
        "last": float(observed.relative_times(experiment, run).tail(LAST).to_numpy().mean()),
        "timeouts": run.manifest.measured.counters.tcp_timeouts,
        "drops": int(run.links.groupby("link")["drops"].max().sum()),
    }  # fmt: skip


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
            found = [means.get((*kind, queue, role)) for role in ("baseline", "treatment")]
            if found[0] is None or found[1] is None:
                continue
            base, other = found[0].mean(), found[1].mean()
            gains[y, x] = base["last"] / other["last"]
            axis.text(x, y - 0.12, f"{base['last']:.2f} → {other['last']:.2f}", ha="center", va="center", fontsize=11,
                      fontweight="bold" if other["last"] <= 1 + WITHIN else "normal")  # fmt: skip
            axis.text(
                x,
                y + 0.24,
                f"timeouts {base['timeouts']:.0f}, {other['timeouts']:.0f}",
                ha="center",
                va="center",
                fontsize=8,
            )
    axis.imshow(gains, aspect="auto", cmap="RdBu", norm=TwoSlopeNorm(1.0, vmin=0.6, vmax=1.6), alpha=0.6)
    axis.set_xticks(range(len(queues)), [f"{queue:g} ms" for queue in queues])
    axis.set_yticks(range(len(kinds)), [f"{base}, {'marks' if marks else 'drops'}" for base, marks in kinds])
    axis.grid(visible=False)


def _ideal(study: Study, claim: str, rows: pd.DataFrame) -> Finding:
    mltcp = rows[rows["role"] == "treatment"]
    if mltcp.empty:
        return not_measured(claim, SOURCE, "no link of that kind was run")
    cells = mltcp.groupby(KEYS)["last"].apply(list)
    means = cells.apply(np.mean)
    bases = rows[rows["role"] == "baseline"].groupby(KEYS)["last"].mean()
    fine = means <= 1 + WITHIN
    slower = int((means > 1.02 * bases.reindex(means.index)).sum())
    worst = cells[means.idxmax()]
    return Finding(
        claim, SOURCE,
        f"last ten iterations ÷ ideal: MLTCP {means.min():.3f} to {means.max():.3f}, its bases {bases.min():.3f} to {bases.max():.3f}; within {WITHIN:.0%} of "
        f"the ideal in {fine.sum()} of {len(means)} cells, slower than its base by more than 2 % in {slower}",
        float(means.max()), "× ideal iteration time, the worst cell, last ten iterations", interval(worst), len(worst),
        graded(bool(fine.all()), fine.mean() >= 0.5, alike=bool(bases.max() <= 1 + WITHIN)),
        f"reproduced if the mean is within {WITHIN:.0%} of the ideal in every cell, partly if in half of them; judged: the worst",
        study.paths,
    )  # fmt: skip

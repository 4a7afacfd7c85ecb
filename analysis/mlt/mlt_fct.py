"""How long exchanges take under MLT and TCP, in the mean and at the tail, over the number of workers; published values beside."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from testbed.core import builtin_transport, system_text
from testbed.core.runs.load import LoadError, Run
from testbed.report import drawing, phases, style
from testbed.report.study import Study

ID = "mlt-fct"
POSITION = 280
TITLE = "How long an exchange takes under MLT"
TEXT = (
    "From the moment a layer's gradient is ready until its parameters are there: mean (left) and 99th percentile (right) over all layers, workers, and iterations "
    "but the first, ÷ that of DCTCP; dots are seeds. Like pFabric and PIAS: tensors in strict priority by what is left or was sent of them, over DCTCP (docs/baselines.md). "
    "Grey, to the right: the paper's flow completion times (ns-3, ResNet50), 36 to 144 workers, NDP's among them, which is not run here: a flow is a part of "
    "such an exchange, so that only the ratios can be compared."
)
# Average and tail in ms at 36, 72, 108 and 144 workers, ResNet50 (published figure, values read from the drawing).
PUBLISHED: dict[str, dict[str, tuple[float, ...]]] = {
    "mean_s": {
        "DCTCP": (1.72, 2.49, 3.20, 4.07), "MLT": (1.27, 1.73, 2.07, 2.32), "NDP": (1.32, 1.85, 2.14, 2.40), "pFabric": (1.53, 2.11, 2.95, 3.60),
        "PIAS": (1.77, 2.49, 3.38, 4.20),
    },
    "tail_s": {
        "DCTCP": (11, 13, 631, 634), "MLT": (8, 13, 17, 52), "NDP": (9, 14, 18, 57), "pFabric": (10, 17, 330, 453), "PIAS": (10, 17, 634, 634),
    },
}  # fmt: skip
PALE = "#999999"
DASHES = ("-", "--", ":", "-.")
AT = ("36", "72", "108", "144")
TITLES = {"mean_s": "mean", "tail_s": "99th percentile (published: tail)"}


def draw(study: Study, out: Path) -> list[Path]:
    """Write ``mlt-fct.{png,pdf,csv}``; the data: a row per run, seconds."""
    rows = _table(study)
    workers = sorted(rows["workers"].unique())
    figure, axes = style.new_figure(1, 2, figsize=(11, 4.4), sharey=True)
    for axis, (column, title) in zip(axes[0], TITLES.items(), strict=True):
        for colour, (system, mine) in zip(style.JOBS, rows.groupby("system", sort=False), strict=False):
            ratios = (
                mine[column]
                / _base(rows, column).reindex(pd.MultiIndex.from_frame(mine[["workers", "seed"]])).to_numpy()
            )
            x = mine["workers"].map(workers.index)
            means = ratios.groupby(x).mean()
            arrived = mine["delivered"].mean()
            axis.plot(
                means.index,
                means,
                color=colour,
                label=f"{system}" + ("" if arrived == 1 else f" ({arrived:.0%} arrived)"),
            )
            axis.plot(x, ratios, "o", color=colour, markersize=4)
        (_, base), *others = PUBLISHED[column].items()
        beyond = range(len(workers), len(workers) + len(AT))
        for dash, (name, values) in zip(DASHES, others, strict=True):
            shares = [value / of for value, of in zip(values, base, strict=True)]
            axis.plot(
                beyond,
                shares,
                dash,
                color=PALE,
                marker="o",
                markersize=3,
                linewidth=1.2,
                label=f"published: {name}",
            )
        axis.axhline(1, color="black", linewidth=0.8)
        axis.set_xticks(range(len(workers) + len(AT)), [*map(str, workers), *AT])
        axis.set(title=title, xlabel="workers (right, grey: as published)")
    axes[0, 0].set_ylim(bottom=0)
    axes[0, 0].set_ylabel("completion of an exchange ÷ DCTCP's")
    figure.legend(
        *axes[0, 0].get_legend_handles_labels(),
        loc="outside upper center",
        ncols=4,
        fontsize=9,
    )
    one = study.runs[0]
    drawing.caption(
        figure,
        f"{one.jobs[0].trace}, {drawing.setting(one)}; {drawing.count(rows['seed'].nunique(), 'seed')} (dots), {drawing.count(one.jobs[0].iterations, 'iteration')}. "
        "Of MLT's gradients up to a tenth may be missing.",
    )
    return drawing.save(figure, rows, out, ID)


def _base(rows: pd.DataFrame, column: str) -> pd.Series[float]:
    """Of the system that the paper compares with, by workers and seed: the first TCP."""
    first = rows[rows["tcp"]]["system"].iloc[0]
    found: pd.Series[float] = rows[rows["system"] == first].set_index(["workers", "seed"])[column]
    return found


def _table(study: Study) -> pd.DataFrame:
    """``workers, system, role, tcp, seed, delivered, mean_s, tail_s``; raises `LoadError` without MLT beside TCP."""
    rows = pd.DataFrame([_row(run) for run in study.runs])
    if rows.empty or rows["tcp"].all() or not rows["tcp"].any():
        raise LoadError(f"{ID}: there are no results of both MLT and TCP; run experiments/{ID}.toml")
    return rows.sort_values("workers", kind="stable", ignore_index=True)


def _row(run: Run) -> dict[str, Any]:
    sends = {operation.id for operation in run.jobs[0].collectives}
    told = run.operations
    done = told[told["operation"].isin(sends) & (told["iteration"] > 0)]  # the first finds its rates
    took = (done["end_s"] - done["start_s"]).to_numpy()
    return {
        "workers": len(run.jobs[0].hosts), "system": run.system, "what": _what(run), "role": run.role, "tcp": run.jobs[0].by_tcp, "seed": run.seed,
        "delivered": phases.delivered(run), "mean_s": float(took.mean()), "tail_s": float(np.percentile(took, 99)),
    }  # fmt: skip


def _what(run: Run) -> str:
    """A system as claims ask for it."""
    job = run.jobs[0]
    if run.plan.system.flow_scheduler is not None:
        return system_text.name_of(run.plan.system.flow_scheduler)
    if not job.by_tcp:
        return (
            "MLT, solved" if any("solved" in value for _, value in system_text.part(job.transport).options) else "MLT"
        )
    return job.cc.name.upper() + ("" if builtin_transport.plain(job.transport) else ", a share sent")

"""How long exchanges take under MLT and TCP, in the mean and at the tail, over the number of workers; with published values."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from testbed.core import builtin_transport, system_text
from testbed.core.runs.load import LoadError, Run
from testbed.report import drawing, phases, redrawing, style
from testbed.report.figures import Tables
from testbed.report.study import Study

ID = "mlt-fct"
POSITION = 280
TITLE = (
    "MLT shortens exchanges by 20 to 37 % in the mean; strict priorities over DCTCP gain as much, but not in the tail"
)
TEXT = (
    "Time from a layer's gradient being ready until its parameters arrive, over all layers, workers and iterations but the first, relative to DCTCP; 95 % intervals. Left: measured. "
    "Right: flow completion times as published (ns-3, ResNet50); a flow is a part of an exchange, so only ratios compare. `priority` and PIAS schedule tensors (pFabric, PIAS)."
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
COLOURS = {
    "MLT": (style.JOBS[0], "o"), "MLT, solved": (style.JOBS[4], "D"), "priority": (style.JOBS[1], "s"), "pFabric": (style.JOBS[1], "s"), "PIAS": (style.JOBS[2], "^"),
    "TCP, a share sent": (style.JOBS[3], "v"), "CUBIC": (style.JOBS[7], "P"), "NDP": (style.JOBS[5], "X"),
}  # fmt: skip
LABELS = {
    "MLT, solved": "MLT, solved thresholds",
    "TCP, a share sent": "TCP, partial send",
}  # in place of the table's names
AT = (36, 72, 108, 144)
TITLES = {"mean_s": "mean", "tail_s": "99th percentile"}


def draw(study: Study, out: Path) -> list[Path]:
    """Write ``mlt-fct.{png,pdf,csv}``; the data: a row per run, seconds."""
    rows = _table(study)
    one = study.runs[0]
    note = (
        f"{one.jobs[0].trace}, {drawing.setting(one)}; {drawing.count(rows['seed'].nunique(), 'seed')} (dots), {drawing.count(one.jobs[0].iterations, 'iteration')}. "
        "Of MLT's gradients up to a tenth may be missing."
    )
    return redrawing.publish(plot, {ID: rows}, note, out)


def plot(tables: Tables) -> Any:
    """A row for the mean and one for the tail; measured, and as published."""
    rows = tables[ID]
    figure, axes = style.new_figure(2, 2, figsize=(11, 7.4), sharex="col", width_ratios=[1.2, 1])
    for (measured, published), (column, title) in zip(axes, TITLES.items(), strict=True):
        base = _base(rows, column)
        kinds = [what for what in COLOURS if what in set(rows["what"])]
        for place, what in enumerate(kinds):
            mine = rows[rows["what"] == what].copy()
            mine["ratio"] = mine[column] / base.reindex(pd.MultiIndex.from_frame(mine[["workers", "seed"]])).to_numpy()
            mine["x"] = mine["workers"] + 0.1 * (place - (len(kinds) - 1) / 2)
            colour, marker = COLOURS[what]
            drawing.trend(measured, mine, "x", "ratio", colour, marker=marker, label=LABELS.get(what, what))
        (_, first), *others = PUBLISHED[column].items()
        for name, values in others:
            shares = [value / of for value, of in zip(values, first, strict=True)]
            published.plot(AT, shares, color=COLOURS[name][0], marker=COLOURS[name][1], label=name)
        if column == "tail_s":
            drawing.plain_log(published.yaxis)
        for axis in (measured, published):
            axis.axhline(1, color="black", linewidth=0.8)
        measured.set_ylabel(f"{title} ÷ DCTCP's")
    for axis, at, title in zip(
        axes[-1], (sorted(rows["workers"].unique()), AT), ("Measured", "Published"), strict=True
    ):
        axis.set_xticks(list(at), [str(one) for one in at])
        axis.set_xlabel("workers")
        axes[0, 0 if title == "Measured" else 1].set_title(title)
    axes[0, 1].legend(fontsize=8)
    figure.legend(*axes[0, 0].get_legend_handles_labels(), loc="outside upper center", ncols=6, fontsize=9)
    return figure


def _base(rows: pd.DataFrame, column: str) -> pd.Series[float]:
    """The system that the paper compares with, by workers and seed: the first TCP."""
    first = rows[rows["tcp"]]["system"].iloc[0]
    found: pd.Series[float] = rows[rows["system"] == first].set_index(["workers", "seed"])[column]
    return found


def _table(study: Study) -> pd.DataFrame:
    """``workers, system, role, tcp, seed, delivered, mean_s, tail_s``; raises `LoadError` without both MLT and TCP."""
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

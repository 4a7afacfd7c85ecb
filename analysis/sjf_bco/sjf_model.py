"""SJF-BCO's equation 8 against the TCP stack: what contention costs, predicted and measured."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from testbed.core.runs.load import LoadError, Run
from testbed.models.calibration import Cell, Fit, fit
from testbed.report import drawing, redrawing, style
from testbed.report import observations as observed
from testbed.report.figures import Tables
from testbed.report.study import Study

ID = "sjf-model"
POSITION = 440
TITLE = "Equation 8 predicts unseen Reno iterations to about 9 %; under MLTCP contention costs less"
TEXT = (
    "Equal jobs share the uplinks of two servers. Left: measured slowdown (steady state, a dot a run) against equation 8, fitted to the other half of the "
    "cells; dotted: within 10 %. Right: f, the number of jobs whose fair share each gets while it sends, fitted for each seed; dashed: f = p, all send "
    "together."
)
CLOSE = 0.10


def draw(study: Study, out: Path) -> list[Path]:
    """Write ``sjf-model.{png,pdf,csv}``; the data: a row per run."""
    table = _table(study)
    note = f"{drawing.setting(study.runs[0])}; {drawing.count(table['seed'].nunique(), 'seed')}"
    return redrawing.publish(plot, {ID: table, f"{ID}-fits": _fitted(table, _fits(table))}, note, out)


def plot(tables: Tables) -> Any:
    """Measured against predicted slowdown, and the fitted f."""
    table = tables[ID]
    figure, axes = style.new_figure(1, 2, figsize=(11.0, 4.6))
    left, right = axes[0]
    fits = _fits(table)
    crowds = np.arange(1, int(table["p"].max()) + 1)
    for (system, found), colour in zip(fits.items(), style.JOBS, strict=False):
        rows = table[(table["system"] == system) & table["held_out"]]
        said = [
            found[seed].slowdown(p, ratio)
            for seed, p, ratio in zip(rows["seed"], rows["p"], rows["ratio"], strict=True)
        ]
        left.plot(said, rows["slowdown"], "o", color=colour, markersize=5, markeredgewidth=0, alpha=0.7, label=system)
        lines = [[one.degradation(int(p)) for p in crowds] for one in found.values()]
        right.plot(crowds, np.transpose(lines), color=colour, linewidth=0.6, alpha=0.4)
        right.plot(crowds, np.mean(lines, axis=0), color=colour, linewidth=2, label=system)
    reach = np.array([1.0, 1.05 * float(table["slowdown"].max())])
    left.plot(reach, reach, color=style.REFERENCE, linewidth=1)
    for off in (1 - CLOSE, 1 + CLOSE):
        left.plot(reach, off * reach, ":", color=style.REFERENCE, linewidth=1)
    left.set(xlabel="predicted iteration ÷ that in isolation", ylabel="measured", title="Held-out settings")
    left.legend(loc="upper left")
    right.plot(crowds, crowds, "--", color=style.REFERENCE, linewidth=1, label="f = p")
    right.set(xlabel="p: jobs on the uplink", ylabel="f", title="Fitted degradation f by contention", xticks=crowds)
    right.legend(loc="upper left")
    return figure


def _fitted(table: pd.DataFrame, fits: dict[str, dict[int, Fit]]) -> pd.DataFrame:
    """``system, role, first, seed, xi1, alpha, error, degradation``: the error on held-out cells, and f of the most jobs; ``first`` of its role."""
    roles = dict(zip(table["system"], table["role"], strict=True))
    firsts = {role: system for system, role in reversed(roles.items())}
    most = int(table["p"].max())
    rows = [
        {
            "system": system, "role": roles[system], "first": firsts[roles[system]] == system, "seed": seed, "xi1": one.xi1, "alpha": one.alpha,
            "error": one.error(_cells(table, system, seed, held_out=True)), "degradation": one.degradation(most),
        }
        for system, of_seed in fits.items()
        for seed, one in of_seed.items()
    ]  # fmt: skip
    return pd.DataFrame(rows)


def _fits(table: pd.DataFrame) -> dict[str, dict[int, Fit]]:
    """By system and seed: to the cells that are not held out."""
    return {
        str(system): {int(str(seed)): fit(_cells(rows, str(system), int(str(seed)), held_out=False)) for seed in rows["seed"].unique()}
        for system, rows in table.groupby("system", sort=False)
    }  # fmt: skip


def _cells(table: pd.DataFrame, system: str, seed: int, *, held_out: bool) -> list[Cell]:
    rows = table[(table["system"] == system) & (table["seed"] == seed) & (table["held_out"] == held_out)]
    if rows.empty:
        raise LoadError("there are too few cells to fit to one half and to look at the other")
    return [
        Cell(int(p), float(ratio), float(took))
        for p, ratio, took in zip(rows["p"], rows["ratio"], rows["slowdown"], strict=True)
    ]


def _table(study: Study) -> pd.DataFrame:
    """A row per run; ``held_out`` like the squares of a chessboard over p and the ratio."""
    if not study.runs:
        raise LoadError(f"{ID}: there are no runs; run experiments/{ID}.toml")
    table = observed.table(study).rename(columns={"cc": "system", "jobs": "p", "settled": "slowdown"})
    table = table.assign(ratio=[round(_ratio(run), 2) for run in study.runs])
    rank = table["p"].rank(method="dense") + table["ratio"].rank(method="dense")
    return table.assign(held_out=rank % 2 == 1)[
        ["system", "role", "seed", "p", "ratio", "slowdown", "held_out", "timeouts"]
    ]


def _ratio(run: Run) -> float:
    """Communication in isolation ÷ computing, of its equal jobs."""
    job = run.jobs[0]
    computing_s = sum(op.duration_ns or 0 for op in job.operations) / 1e9
    if job.ideal_s is None or not computing_s:
        raise LoadError(f"{run.path}: its jobs compute nothing, or are real programs")
    return job.ideal_s / computing_s - 1

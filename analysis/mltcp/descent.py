"""Two jobs' distance, iteration by iteration, against the shift equation and its loss function."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.ticker import MaxNLocator

from testbed.core import system_text
from testbed.core.runs import measured, metrics
from testbed.core.runs.load import Experiment, Run
from testbed.models import curves as theory
from testbed.models import fluid
from testbed.models.fluid import MLTCP_ACTIVE_FROM
from testbed.report import drawing, fluid_comparison, redrawing, style
from testbed.report import observations as observed
from testbed.report.figures import Tables
from testbed.report.study import Study

ID = "descent"
POSITION = 50
TITLE = "Two jobs move apart as the shift equation says, to about 0.05 of a communication phase"
TEXT = (
    "D: distance between the starts of two communication phases, in units of their length A. Left: D over iterations, a thin line a seed, with 95 % "
    "interval. Middle: its change in one iteration against the shift equation (shares ∝ F, ∝ √F) and the fluid model. Right: the loss function; dots: mean "
    "D from the third iteration on."
)
SETTLED = 0.97  # of A: from there on there is nothing to descend
EXPONENTS = {1.0: "∝ F", 0.5: "∝ √F"}


def draw(study: Study, out: Path) -> list[Path]:
    """Write ``descent.{png,pdf,csv}``."""
    if not study.experiments:
        return []
    experiment = study.experiments[0]
    table = _table(experiment)
    run = experiment.runs[0]
    note = f"{drawing.setting(run)}; {drawing.count(table['seed'].nunique(), 'seed')}; A = {_comm_s(run):.3f} s"
    return redrawing.publish(plot, {ID: table}, note, out)


def plot(tables: Tables) -> Any:
    """D over iterations, its change in one iteration, and the loss, with theory."""
    table = tables[ID]
    roles = observed.roles(table)
    figure, axes = style.new_figure(1, 3, figsize=(14.5, 4.4))
    for i, cc in enumerate(roles, -1):
        treated = roles[cc] == "treatment"
        colour, curve = style.JOBS[i % len(style.JOBS)] if treated else style.REFERENCE, fluid_comparison.curve_of(cc)
        lines = table[table["cc"] == cc].pivot(index="iteration", columns="seed", values="d")
        drawing.bundle(axes[0, 0], lines, colour, _name(cc, curve))
        rows = _steps(table, cc)
        axes[0, 1].plot(rows["d"], rows["shift"], "o", markersize=3, markeredgewidth=0, alpha=0.45, color=colour)
        if treated:
            _theory(axes[0, 1], axes[0, 2], curve, lines, colour)
    _finish(axes[0])
    return figure


def _fluid_shift(d: np.ndarray, curve: theory.Curve) -> np.ndarray:
    starts = np.column_stack([np.zeros_like(d), d])
    apart = fluid.simulate([2.0, 2.0], [1.0, 1.0], starts, curve, exponent=0.5, iterations=2, mltcp_active_from=0)
    begins = apart.comm_start_s[:, :, 1] - apart.comm_start_s[:, :, 0]
    return np.asarray(begins[:, 1] - begins[:, 0])


def _name(cc: str, curve: theory.Curve) -> str:
    return system_text.name_of(cc) + (f"\nS = {curve.slope:.3g}, I = {curve.intercept:.3g}" if curve.slope else "")


def _comm_s(run: Run) -> float:
    return float(fluid_comparison.comm_s(run)[0])


def _table(experiment: Experiment) -> pd.DataFrame:
    """D ÷ A of every run and iteration, by how much the next one's differs, and the equation's value (shares ∝ F)."""
    tables = []
    for run in experiment.runs:
        apart = metrics.start_difference(run.iterations, measured.ideal_s(run)) / _comm_s(run)
        d = apart.to_numpy()
        rows = pd.DataFrame({"cc": run.system, "role": run.role, "seed": run.seed, "iteration": apart.index, "d": d})
        rows["shift"] = rows["d"].shift(-1) - rows["d"]
        rows["expected"] = theory.shift(d, 1.0, fluid_comparison.curve(run)) if run.role == "treatment" else np.nan
        tables.append(rows)
    every = pd.concat(tables, ignore_index=True)
    return every.assign(
        judged=(every["iteration"] >= MLTCP_ACTIVE_FROM) & (every["d"] < SETTLED) & every["shift"].notna()
    )


def _steps(table: pd.DataFrame, cc: str) -> pd.DataFrame:
    """D ÷ A of each iteration but the last, and by how much the next one's differs."""
    rows = table[table["cc"] == cc]
    return rows.dropna(subset="shift")


def _theory(middle: Any, right: Any, curve: theory.Curve, lines: pd.DataFrame, colour: str) -> None:
    d = np.linspace(0, 1, 201)
    for (exponent, _), line in zip(EXPONENTS.items(), ("-", "--"), strict=True):
        middle.plot(d, theory.shift(d, 1.0, curve, exponent), line, color=colour, linewidth=1.3)
        right.plot(d, theory.loss(d, 1.0, curve, exponent), line, color=colour, linewidth=1.3)
    middle.plot(d, _fluid_shift(d, curve), ":", color=colour, linewidth=1.6)
    path = lines.mean(axis="columns").iloc[MLTCP_ACTIVE_FROM:]
    right.plot(path, theory.loss(path, 1.0, curve, 0.5), "o", color=colour, markersize=5, markeredgewidth=0, alpha=0.7)


def _finish(axes: Any) -> None:
    left, middle, right = axes
    left.axhline(1, color=style.REFERENCE, linewidth=0.8, linestyle=":")
    left.axvline(MLTCP_ACTIVE_FROM, color=style.REFERENCE, linewidth=0.8, linestyle=":")
    left.annotate("MLTCP active", (MLTCP_ACTIVE_FROM, 1), xycoords=("data", "axes fraction"), xytext=(3, -10), textcoords="offset points",
                  fontsize=8, color=style.REFERENCE)  # fmt: skip
    left.set(
        xlabel="iteration", ylabel="difference of starts, D ÷ A", ylim=(0, 1.12), title="Distance of the jobs' starts"
    )
    left.xaxis.set_major_locator(MaxNLocator(integer=True))
    left.legend(loc="center right", bbox_to_anchor=(1.0, 0.58), fontsize=8, labelspacing=0.7)
    middle.axhline(0, color=style.REFERENCE, linewidth=0.8)
    middle.set(
        xlabel="D ÷ A",
        ylabel="shift in one iteration ÷ A",
        xlim=(-0.02, 1.08),
        ylim=(-0.15, 0.66),
        title="Shift in one iteration",
    )
    for exponent, line in zip(EXPONENTS.values(), ("-", "--"), strict=True):
        middle.plot([], [], line, color=style.REFERENCE, label=f"shift equation, shares {exponent}")
    middle.plot([], [], ":", color=style.REFERENCE, linewidth=1.6, label="fluid model, shares ∝ √F")
    middle.plot([], [], "o", color=style.REFERENCE, markersize=4, label="measured, one iteration of one seed")
    middle.legend(loc="upper right", fontsize=8)
    right.set(xlabel="D ÷ A", ylabel="loss ÷ A²", xlim=(-0.02, 1.08), title="Loss function")
    for exponent, line in zip(EXPONENTS.values(), ("-", "--"), strict=True):
        right.plot([], [], line, color=style.REFERENCE, label=f"loss, shares {exponent}")
    right.plot([], [], "o", color=style.REFERENCE, markersize=5, label="measured mean D, one dot per iteration")
    right.legend(loc="upper right", fontsize=8)

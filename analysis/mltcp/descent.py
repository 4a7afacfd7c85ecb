"""Two jobs' distance, iteration by iteration, against the shift equation and its loss function."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.ticker import MaxNLocator

from testbed.core.runs import measured, metrics
from testbed.core.runs.load import Experiment, Run
from testbed.models import curves as theory
from testbed.models import fluid, statistics
from testbed.models.fluid import MLTCP_ACTIVE_FROM
from testbed.report import drawing, fluid_comparison, style
from testbed.report.finding import Finding, Verdict, not_measured
from testbed.report.study import Study

ID = "descent"
POSITION = 50
TITLE = "The distance of two jobs, iteration by iteration, against the shift equation"
TEXT = (
    "How far apart two jobs begin to communicate (D), in units of the time that one of them communicates alone (A). Left: D "
    "over the iterations, one thin line a seed, mean and 95 % interval; at D = A the phases no "
    "longer overlap. Middle: by how much D changes in one iteration, one dot each, against the shift "
    "equation with shares ∝ F (losses together, as the paper has it) and ∝ √F (losses apart), both with shares frozen at the moment the second job begins, and against the fluid twin, in which they follow F. Right: the loss "
    "function, minus the integral of the shift; the dots are the mean D of the iterations from the third on, at which F is in force."
)
SHIFT = "In each iteration two jobs move apart by Shift(D) = S·D·(A − D) / (A·I + S·D)."
SHIFT_SOURCE = "HotNets 2024, equation 2 [published: quoted and derived by a third party]"
CONTROLS = {SHIFT: "shares that do not follow F (fluid model, exponent 0)"}
SETTLED = 0.97  # of A: from there on there is nothing to descend
EXPONENTS = {1.0: "∝ F", 0.5: "∝ √F"}
PUBLISHED = "with shares ∝ F"


def draw(study: Study, out: Path) -> list[Path]:
    """Write ``descent.{png,pdf,csv}``."""
    if not study.experiments:
        return []
    experiment = study.experiments[0]
    colours = {
        cc: (style.REFERENCE if experiment.roles[cc] != "treatment" else style.JOBS[i % len(style.JOBS)])
        for i, cc in enumerate(experiment.systems, -1)
    }
    figure, axes = style.new_figure(1, 3, figsize=(14.5, 4.4))
    table = _table(experiment)
    for cc in experiment.systems:
        run = experiment.runs_of(cc)[0]
        lines = table[table["cc"] == cc].pivot(index="iteration", columns="seed", values="d")
        drawing.bundle(axes[0, 0], lines, colours[cc], _name(run))
        rows = _steps(table, cc)
        axes[0, 1].plot(rows["d"], rows["shift"], "o", markersize=3, markeredgewidth=0, alpha=0.45, color=colours[cc])
        if experiment.roles[cc] == "treatment":
            _theory(axes[0, 1], axes[0, 2], run, lines, colours[cc])
    _finish(axes[0])
    drawing.caption(
        figure,
        f"{drawing.setting(experiment.runs[0])}; {drawing.count(table['seed'].nunique(), 'seed')}; A = {_comm_s(experiment.runs[0]):.3f} s",
    )
    return drawing.save(figure, table, out, ID)


def find(study: Study) -> list[Finding]:
    """One finding: whether the shift is the equation's. (That each iteration lowers the loss follows from any F that increases: a
    test of the fluid twin, and no finding.)"""
    if not study.experiments or "treatment" not in study.experiments[0].roles.values():
        why = "there are no results" if not study.experiments else "there is no run of MLTCP"
        return [not_measured(SHIFT, SHIFT_SOURCE, why)]
    experiment = study.experiments[0]
    cc = next(cc for cc, role in experiment.roles.items() if role == "treatment")
    runs = experiment.runs_of(cc)
    rows = _steps(_table(experiment), cc)
    rows = rows[(rows["iteration"] >= MLTCP_ACTIVE_FROM) & (rows["d"] < SETTLED)]
    if rows.empty:
        return [not_measured(SHIFT, SHIFT_SOURCE, "the jobs began apart")]
    return [_shift(rows, runs, tuple(run.path for run in runs))]


def _shift(rows: pd.DataFrame, runs: list[Run], paths: tuple[Path, ...]) -> Finding:
    curve = fluid_comparison.curve(runs[0])
    by_seed = {
        what: statistics.mean(rows.assign(error=(rows["shift"] - expected).abs()).groupby("seed")["error"].mean())
        for what, expected in _expected(rows["d"].to_numpy(), curve).items()
    }
    exponents = statistics.mean(_exponent(one, curve) for _, one in rows.groupby("seed"))
    alike = float(np.corrcoef(rows["shift"], theory.shift(rows["d"], 1.0, curve, 0.5))[0, 1])
    published = by_seed[PUBLISHED]
    at_most = published.value if published.interval is None else published.interval[1]
    verdict: Verdict = (
        "reproduced" if at_most <= 0.05 else "partly" if published.value <= 0.05 or alike >= 0.7 else "not reproduced"
    )
    return Finding(
        SHIFT, SHIFT_SOURCE,
        "mean distance of the measured shift from the equation, in units of A: "
        + "; ".join(f"{found} {what}" for what, found in by_seed.items())
        + f"; the exponent p of shares ∝ F^p that fits best: {exponents}",
        published.value, "A from the equation as published, mean", published.interval, published.n, verdict,
        "reproduced if the mean distance from the equation as published (shares ∝ F) is surely (its interval) at most 0.05 A; partly if the mean is, or if the shift only "
        f"depends on D as with shares ∝ √F (correlation {alike:.2f}, 0.7 asked for); iterations with F in force and D below {SETTLED} A",
        paths,
    )  # fmt: skip


def _expected(d: np.ndarray, curve: theory.Curve) -> dict[str, np.ndarray]:
    """Shift ÷ A by each theory, at D ÷ A."""
    found = {f"with shares {text}": theory.shift(d, 1.0, curve, p) for p, text in EXPONENTS.items()}
    return {**found, "in the fluid twin (shares ∝ √F, F changing all the time)": _twin_shift(d, curve)}


def _twin_shift(d: np.ndarray, curve: theory.Curve) -> np.ndarray:
    starts = np.column_stack([np.zeros_like(d), d])
    apart = fluid.simulate([2.0, 2.0], [1.0, 1.0], starts, curve, exponent=0.5, iterations=2, mltcp_active_from=0)
    begins = apart.comm_start_s[:, :, 1] - apart.comm_start_s[:, :, 0]
    return np.asarray(begins[:, 1] - begins[:, 0])


def _exponent(rows: pd.DataFrame, curve: theory.Curve) -> float:
    """Of shares ∝ F^p in the shift equation: which fits a seed's shifts best (least squares)."""
    grid = np.linspace(0, 2, 201)
    errors = [float(((rows["shift"] - theory.shift(rows["d"], 1.0, curve, p)) ** 2).sum()) for p in grid]
    return float(grid[int(np.argmin(errors))])


def _name(run: Run) -> str:
    curve = fluid_comparison.curve(run)
    return f"{run.jobs[0].cc.name}" + (f"\nS = {curve.slope:.3g}, I = {curve.intercept:.3g}" if curve.slope else "")


def _comm_s(run: Run) -> float:
    return float(fluid_comparison.comm_s(run)[0])


def _table(experiment: Experiment) -> pd.DataFrame:
    """D ÷ A of every run and iteration."""
    tables = []
    for run in experiment.runs:
        apart = metrics.start_difference(run.iterations, measured.ideal_s(run)) / _comm_s(run)
        tables.append(
            pd.DataFrame({"cc": run.system, "seed": run.seed, "iteration": apart.index, "d": apart.to_numpy()})
        )
    return pd.concat(tables, ignore_index=True)


def _steps(table: pd.DataFrame, cc: str) -> pd.DataFrame:
    """D ÷ A of each iteration but the last, and by how much the next one's differs."""
    rows = table[table["cc"] == cc]
    return rows.assign(shift=rows.groupby("seed")["d"].shift(-1) - rows["d"]).dropna()


def _theory(middle: Any, right: Any, run: Run, lines: pd.DataFrame, colour: str) -> None:
    curve, d = fluid_comparison.curve(run), np.linspace(0, 1, 201)
    for (exponent, _), line in zip(EXPONENTS.items(), ("-", "--"), strict=True):
        middle.plot(d, theory.shift(d, 1.0, curve, exponent), line, color=colour, linewidth=1.3)
        right.plot(d, theory.loss(d, 1.0, curve, exponent), line, color=colour, linewidth=1.3)
    middle.plot(d, _twin_shift(d, curve), ":", color=colour, linewidth=1.6)
    path = lines.mean(axis="columns").iloc[MLTCP_ACTIVE_FROM:]
    right.plot(path, theory.loss(path, 1.0, curve, 0.5), "o", color=colour, markersize=5, markeredgewidth=0, alpha=0.7)


def _finish(axes: Any) -> None:
    left, middle, right = axes
    left.axhline(1, color=style.REFERENCE, linewidth=0.8, linestyle=":")
    left.axvline(MLTCP_ACTIVE_FROM, color=style.REFERENCE, linewidth=0.8, linestyle=":")
    left.annotate("F in force", (MLTCP_ACTIVE_FROM, 1), xycoords=("data", "axes fraction"), xytext=(3, -10), textcoords="offset points",
                  fontsize=8, color=style.REFERENCE)  # fmt: skip
    left.set(xlabel="iteration", ylabel="difference of starts, D ÷ A", ylim=(0, 1.12), title="Where the jobs are")
    left.xaxis.set_major_locator(MaxNLocator(integer=True))
    left.legend(loc="center right", bbox_to_anchor=(1.0, 0.58), fontsize=8, labelspacing=0.7)
    middle.axhline(0, color=style.REFERENCE, linewidth=0.8)
    middle.set(
        xlabel="D ÷ A",
        ylabel="shift in one iteration ÷ A",
        xlim=(-0.02, 1.08),
        ylim=(-0.15, 0.66),
        title="How far they move",
    )
    for exponent, line in zip(EXPONENTS.values(), ("-", "--"), strict=True):
        middle.plot([], [], line, color=style.REFERENCE, label=f"shift equation, shares {exponent}")
    middle.plot([], [], ":", color=style.REFERENCE, linewidth=1.6, label="fluid twin, shares ∝ √F")
    middle.plot([], [], "o", color=style.REFERENCE, markersize=4, label="measured, one iteration of one seed")
    middle.legend(loc="upper right", fontsize=8)
    right.set(xlabel="D ÷ A", ylabel="loss ÷ A²", xlim=(-0.02, 1.08), title="What they descend")
    for exponent, line in zip(EXPONENTS.values(), ("-", "--"), strict=True):
        right.plot([], [], line, color=style.REFERENCE, label=f"loss, shares {exponent}")
    right.plot([], [], "o", color=style.REFERENCE, markersize=5, label="measured mean D, an iteration each")
    right.legend(loc="upper right", fontsize=8)

"""Compute times that vary: how far from the best offset two jobs are, against the bound; and what it costs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from testbed.core.runs import measured
from testbed.core.runs.load import Experiment, Run
from testbed.models.curves import noise_bound_s
from testbed.report import drawing, redrawing, style
from testbed.report import observations as observed
from testbed.report.figures import Tables
from testbed.report.study import Study

ID = "stragglers"
POSITION = 140
TITLE = "MLTCP keeps its gain when compute times vary; the paper's bound on the error is undecided"
TEXT = (
    "Two jobs with a duty of one half. Left: standard deviation of their offset against that of a job's own noise; dashed: the paper's bound, dotted: a "
    "linear model in which an iteration leaves I/(S+I) of an error. Right: mean steady-state iteration relative to the ideal without noise, with a "
    "job in isolation."
)


def draw(study: Study, out: Path) -> list[Path]:
    """Write ``stragglers.{png,pdf,csv}``; the data: a row per run."""
    table = _table(study)
    run = study.runs[0]
    note = (
        f"{drawing.setting(run)}; {drawing.count(len(run.jobs), 'job')}, together {table['load'].iloc[0]:.0%} of the link; "
        f"{drawing.count(table['seed'].nunique(), 'seed')} (dots), means, 95 % intervals; last half of {drawing.count(run.jobs[0].iterations, 'iteration')}. "
        "Noise is normal, relative to the compute time; stragglers:5% slows one worker by a Pareto factor in 5 % of iterations."
    )
    return redrawing.publish(plot, {ID: table}, note, out)


def plot(tables: Tables) -> Any:
    """Errors of the offset over noise, and iteration times."""
    table = tables[ID]
    pair = observed.pair(observed.roles(table))
    assert pair is not None
    figure, axes = style.new_figure(1, 2, figsize=(10.8, 4.4))
    _errors(axes[0, 0], table[table["sigma_ms"] > 0], pair)
    _costs(axes[0, 1], table, pair)
    return figure


def offsets_s(run: Run) -> np.ndarray:
    """Start of each communication phase of job 1 after the last one of job 0, steady state; in [0, job 0's period)."""
    first = run.iterations[run.iterations["worker"] == 0]
    starts = {job: np.sort(rows["comm_start_s"].to_numpy()) for job, rows in first.groupby("job")}
    half = float(starts[0][len(starts[0]) // 2])
    later = starts[1][(starts[1] >= half) & (starts[1] < starts[0][-1])]
    return np.asarray(later - starts[0][np.searchsorted(starts[0], later, side="right") - 1])


def spread_s(offsets: np.ndarray, period_s: float) -> float:
    """Standard deviation of offsets on the circle of one period: about their circular mean, the shorter way round."""
    centre = np.angle(np.exp(2j * np.pi * offsets / period_s).mean()) * period_s / (2 * np.pi)
    away = (offsets - centre + period_s / 2) % period_s - period_s / 2
    return float(np.std(away))


def _table(study: Study) -> pd.DataFrame:
    table, _ = observed.compared(study)
    more = []
    for experiment in study.experiments:
        for run in experiment.runs:
            offsets = offsets_s(run)
            period = float(observed.settled_times(experiment, run).mean().mean()) * measured.ideals_s(run)[0]
            sigma = _sigma_s(run)
            lone = experiment.find_isolated_runs(run)
            relative = [observed.settled_times(experiment, one).mean().mean() for one in lone.values()]
            more.append({
                "sigma_ms": 1e3 * sigma, "error_ms": 1e3 * spread_s(offsets, period), "bound_ms": 1e3 * noise_bound_s(sigma, 1.0, _i_over_s(experiment)),
                "alone": float(np.mean(relative)) if relative else np.nan,
            })  # fmt: skip
    return pd.concat([table, pd.DataFrame(more)], axis="columns")


def _sigma_s(run: Run) -> float:
    """Standard deviation of a job's compute time; 0 if its noise is not normal."""
    job = run.jobs[0]
    return job.compute_ns / 1e9 * float(job.noise.rstrip("%")) / 100 if ":" not in job.noise else 0.0


def _i_over_s(experiment: Experiment) -> float:
    """Of the MLTCP that is compared; the base, which has no F, is held against the same bound. NaN while only the base was run."""
    treated = next((run for run in experiment.runs if run.role == "treatment"), None)
    if treated is None:
        return np.nan
    constants = treated.constants(treated.system)
    return float(constants["intercept"] / constants["slope"])


def _errors(axis: Any, table: pd.DataFrame, pair: tuple[str, str]) -> None:
    if table.empty:
        axis.set_title("no run with normal noise", fontsize=10)
        return
    x = np.geomspace(table["sigma_ms"].min() / 1.3, table["sigma_ms"].max() * 1.3, 50)
    per_sigma = float((table["bound_ms"] / table["sigma_ms"]).max())
    share = per_sigma / 2 - 1  # I/S
    q = share / (1 + share)
    axis.plot(x, per_sigma * x, color=style.REFERENCE, linewidth=1.4, linestyle="--", label="bound: 2σ (1 + I/S)")
    axis.plot(x, x * np.sqrt(2 / (1 - q**2)), color=style.REFERENCE, linewidth=1.2, linestyle=":", label="linear model")
    for cc, marker in zip(pair, "so", strict=True):
        drawing.trend(
            axis,
            table[table["cc"] == cc],
            "sigma_ms",
            "error_ms",
            drawing.colour(treatment=cc == pair[1]),
            label=cc,
            marker=marker,
        )
    drawing.plain_log(axis.xaxis)
    drawing.plain_log(axis.yaxis)
    axis.set_xlabel("standard deviation of a job's compute time σ (ms)")
    axis.set_ylabel("standard deviation of the offset (ms)")
    axis.set_title("Deviation from the interleaved offset")
    axis.legend(fontsize=9)


def _costs(axis: Any, table: pd.DataFrame, pair: tuple[str, str]) -> None:
    noises = sorted(table["noise"].unique(), key=_level)
    for x, noise in enumerate(noises):
        rows = table[table["noise"] == noise]
        for shift, cc in zip((-0.25, 0.0), pair, strict=True):
            drawing.seeds(
                axis,
                x + shift,
                list(rows[rows["cc"] == cc]["settled"]),
                drawing.colour(treatment=cc == pair[1]),
                width=0.22,
            )
        isolated = list(dict.fromkeys(rows[rows["cc"] == pair[1]]["alone"].dropna()))  # one run may stand for all seeds
        if isolated:
            drawing.seeds(axis, x + 0.25, isolated, style.JOBS[2], width=0.22)
    for name, colour in (
        *((cc, drawing.colour(treatment=cc == pair[1])) for cc in pair),
        ("in isolation", style.JOBS[2]),
    ):
        axis.plot([], [], color=colour, linewidth=2.2, label=name)
    axis.axhline(1, color=style.REFERENCE, linewidth=0.8, linestyle="--")
    axis.set_xticks(range(len(noises)), [noise.replace(":", ":\n") for noise in noises], fontsize=9)
    axis.grid(visible=False, axis="x")
    axis.set_xlabel("noise of the compute time")
    axis.set_ylabel("mean iteration time ÷ ideal")
    axis.set_title("Cost of the noise, steady state")
    axis.legend(fontsize=9, ncols=3, loc="upper left")
    axis.set_ylim(top=axis.get_ylim()[1] * 1.06)


def _level(noise: str) -> tuple[bool, float]:
    """The order of kinds of noise: 0.5% before 10%, and stragglers last."""
    return ":" in noise, float(noise.rsplit(":", maxsplit=1)[-1].rstrip("%"))

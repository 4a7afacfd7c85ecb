"""Compute times that vary: how far from the best offset two jobs are, against the bound; and what it costs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from analysis import drawing, style
from analysis import observations as observed
from analysis.finding import Finding, graded, not_measured
from analysis.study import Study
from core.runs.load import Experiment, LoadError, Run
from theory.statistics import ends, interval

ID = "stragglers"
TITLE = "Stragglers: compute times that vary from iteration to iteration"
TEXT = (
    "Two jobs with a duty of one half have a single best offset. Left: the standard deviation of the offset around its mean, "
    "against that of a job's own noise, one dot a seed; dashed the paper's bound, dotted what two independent noises give "
    "if each iteration leaves I/(S+I) of an error (linear model). Right: what the noise costs, as the mean iteration "
    "time of the settled half ÷ the ideal without noise; a job alone for comparison."
)
BOUND = "Around the interleaved state the error has a standard deviation of at most 2 σ (1 + I/S)."
BOUND_SOURCE = "paper [recalled with high confidence, unconfirmed]"
ROBUST = "MLTCP is robust to stragglers: it keeps its gain when compute times vary."
ROBUST_SOURCE = "paper, summary, without numbers [published]"


def draw(study: Study, out: Path) -> list[Path]:
    """Write ``stragglers.{png,pdf,csv}``; the data: a row per run."""
    table, pair = _table(study)
    figure, axes = style.new_figure(1, 2, figsize=(10.8, 4.4))
    _errors(axes[0, 0], table[table["sigma_ms"] > 0], pair)
    _costs(axes[0, 1], table, pair)
    drawing.caption(
        figure,
        f"{drawing.setting(study.runs[0])}; {len(study.runs[0].jobs)} jobs, together {table['load'].iloc[0]:.0%} of the link. "
        f"{drawing.count(table['seed'].nunique(), 'seed')} (dots), means, 95 % intervals; the settled half of "
        f"{study.runs[0].jobs[0]['iterations']} iterations.",
        "Noise: normal, as a share of the compute time; stragglers:5% is one worker slower by a Pareto factor in 5 % of iterations.",
    )
    return drawing.save(figure, table, out, ID)


def find(study: Study) -> list[Finding]:
    """Two findings: the bound, and the gain under noise."""
    try:
        table, pair = _table(study)
    except LoadError as error:
        return [
            not_measured(claim, source, str(error))
            for claim, source in ((BOUND, BOUND_SOURCE), (ROBUST, ROBUST_SOURCE))
        ]
    return [_bound(study, table, pair), _robust(study, table, pair)]


def offsets_s(run: Run) -> np.ndarray:
    """Start of each communication phase of job 1 after the last one of job 0, settled half; in [0, job 0's period)."""
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


def _table(study: Study) -> tuple[pd.DataFrame, tuple[str, str]]:
    table, pair = observed.compared(study)
    more = []
    for experiment in study.experiments:
        for run in experiment.runs:
            offsets = offsets_s(run)
            period = (
                float(observed.settled(observed.relative_times(experiment, run)).mean().mean()) * run.jobs[0]["ideal_s"]
            )
            sigma = _sigma_s(run)
            lone = experiment.alone_of(run)
            relative = [
                observed.settled(observed.relative_times(experiment, one)).mean().mean() for one in lone.values()
            ]
            more.append({
                "sigma_ms": 1e3 * sigma, "error_ms": 1e3 * spread_s(offsets, period), "bound_ms": 1e3 * 2 * sigma * (1 + _i_over_s(experiment)),
                "alone": float(np.mean(relative)) if relative else np.nan,
            })  # fmt: skip
    table = pd.concat([table, pd.DataFrame(more)], axis="columns")
    return table, pair


def _sigma_s(run: Run) -> float:
    """Standard deviation of a job's compute time; 0 if its noise is not normal."""
    noise = str(run.jobs[0]["noise"])
    compute = sum(one["duration_ns"] for one in run.jobs[0]["operations"] if one["kind"] == "compute") / 1e9
    return compute * float(noise.rstrip("%")) / 100 if ":" not in noise else 0.0


def _i_over_s(experiment: Experiment) -> float:
    """Of the MLTCP that is compared; the base, which has no F, is held against the same bound."""
    treated = next(run for run in experiment.runs if run.role == "treatment")
    constants = treated.constants(treated.system)
    return float(constants["intercept"] / constants["slope"])


def _floor_ms(table: pd.DataFrame, cc: str) -> float:
    """Standard deviation of the offset without any noise; NaN if that was not run."""
    return float(table[(table["cc"] == cc) & (table["noise"] == "0%")]["error_ms"].mean())


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
    axis.set_title("Error around the interleaved state")
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
        alone = list(dict.fromkeys(rows[rows["cc"] == pair[1]]["alone"].dropna()))  # one run may stand for all seeds
        if alone:
            drawing.seeds(axis, x + 0.25, alone, style.JOBS[2], width=0.22)
    for name, colour in (*((cc, drawing.colour(treatment=cc == pair[1])) for cc in pair), ("alone", style.JOBS[2])):
        axis.plot([], [], color=colour, linewidth=2.2, label=name)
    axis.axhline(1, color=style.REFERENCE, linewidth=0.8, linestyle="--")
    axis.set_xticks(range(len(noises)), [noise.replace(":", ":\n") for noise in noises], fontsize=9)
    axis.grid(visible=False, axis="x")
    axis.set_xlabel("noise of the compute time")
    axis.set_ylabel("mean iteration time ÷ ideal")
    axis.set_title("What the noise costs, settled half")
    axis.legend(fontsize=9, ncols=3, loc="upper left")
    axis.set_ylim(top=axis.get_ylim()[1] * 1.06)


def _level(noise: str) -> tuple[bool, float]:
    """In what order to name kinds of noise: 0.5% before 10%, and stragglers last."""
    return ":" in noise, float(noise.rsplit(":", maxsplit=1)[-1].rstrip("%"))


def _bound(study: Study, table: pd.DataFrame, pair: tuple[str, str]) -> Finding:
    rows = table[(table["cc"] == pair[1]) & (table["sigma_ms"] > 0)]
    if rows.empty:
        return not_measured(BOUND, BOUND_SOURCE, "no run with normal noise")
    shares = (
        (rows["error_ms"] / rows["bound_ms"])
        .groupby(rows["noise"])
        .apply(list)
        .sort_index(key=lambda noises: noises.map(_level))
    )
    highs = {str(noise): ends(values)[1] for noise, values in shares.items()}
    below = [noise for noise, high in highs.items() if high <= 1]
    verdict = graded(len(below) == len(highs), bool(below))
    means = {str(noise): float(np.mean(values)) for noise, values in shares.items()}
    undecided = [noise for noise, high in highs.items() if means[noise] <= 1 < high]
    above = [noise for noise, mean in means.items() if mean > 1]
    worst = max(means, key=lambda noise: means[noise])
    return Finding(
        BOUND, BOUND_SOURCE,
        "standard deviation of the offset ÷ bound: "
        + "; ".join(f"{observed.with_interval(values)} at {noise} noise" for noise, values in shares.items())
        + (f"; undecided (the mean below the bound, the interval not): {', '.join(undecided)}" if undecided else "")
        + (f"; above it: {', '.join(above)}" if above else "")
        + ("" if np.isnan(floor := _floor_ms(table, pair[1])) else f"; without noise the standard deviation is {floor:.2g} ms"),
        means[worst], f"of the bound, {worst} noise", interval(shares[worst]), len(shares[worst]), verdict,
        "reproduced if the whole interval (without one, every seed) is below the bound at every level of noise, partly if at some; "
        f"judged: the worst, {worst}",
        study.paths,
    )  # fmt: skip


def _robust(study: Study, table: pd.DataFrame, pair: tuple[str, str]) -> Finding:
    gains = {
        str(noise): observed.ratios(rows, *pair, "settled")
        for noise, rows in sorted(table.groupby("noise"), key=lambda one: _level(str(one[0])))
        if str(noise) != "0%"
    }
    gains = {noise: values for noise, values in gains.items() if values}
    if not gains:
        return not_measured(ROBUST, ROBUST_SOURCE, "no run with noise")
    lows = {noise: ends(values)[0] for noise, values in gains.items()}
    good = [noise for noise, low in lows.items() if low > 1]
    verdict = graded(len(good) == len(gains), bool(good))
    worst = min(gains, key=lambda noise: float(np.mean(gains[noise])))
    return Finding(
        ROBUST, ROBUST_SOURCE,
        "speed-up of the mean, settled half: "
        + "; ".join(f"{observed.with_interval(values)}× at {noise}" for noise, values in gains.items()),
        float(np.mean(gains[worst])), f"× as fast, the least: {worst} noise", interval(gains[worst]), len(gains[worst]), verdict,
        f"reproduced if the speed-up is above 1 (the interval's lower end; without one, the least seed) at every noise; judged: "
        f"the least, {worst}",
        study.paths,
    )  # fmt: skip

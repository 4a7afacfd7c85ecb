"""Compute times that vary: how far from the best offset two jobs are, against the bound; and what it costs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from testbed.core.runs import measured
from testbed.core.runs.load import Experiment, Run
from testbed.models.curves import noise_bound_s
from testbed.models.statistics import Estimate, geometric_mean, log_interval, median, ratio_ends
from testbed.report import drawing, exponent, style
from testbed.report import observations as observed
from testbed.report.finding import ALIKE, Finding, graded, no_difference, not_measured, not_measured_without
from testbed.report.study import Study

ID = "stragglers"
POSITION = 140
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
CONTROLS = {
    BOUND: "offsets that wander over the whole period, and a base that stays within the bound as well",
    ROBUST: "iterations that take as long under MLTCP as under the base",
}


def draw(study: Study, out: Path) -> list[Path]:
    """Write ``stragglers.{png,pdf,csv}``; the data: a row per run."""
    table, pair = _table(study)
    figure, axes = style.new_figure(1, 2, figsize=(10.8, 4.4))
    _errors(axes[0, 0], table[table["sigma_ms"] > 0], pair)
    _costs(axes[0, 1], table, pair)
    drawing.caption(
        figure,
        f"{drawing.setting(study.runs[0])}; {drawing.count(len(study.runs[0].jobs), 'job')}, together {table['load'].iloc[0]:.0%} of the link. "
        f"{drawing.count(table['seed'].nunique(), 'seed')} (dots), means, 95 % intervals; the settled half of "
        f"{drawing.count(study.runs[0].jobs[0].iterations, 'iteration')}.",
        "Noise: normal, as a share of the compute time; stragglers:5% is one worker slower by a Pareto factor in 5 % of iterations.",
    )
    return drawing.save(figure, table, out, ID)


@not_measured_without({BOUND: BOUND_SOURCE, ROBUST: ROBUST_SOURCE})
def find(study: Study) -> list[Finding]:
    """Two findings: the bound, and the gain under noise."""
    table, pair = _table(study)
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
            period = float(observed.settled_times(experiment, run).mean().mean()) * measured.ideals_s(run)[0]
            sigma = _sigma_s(run)
            lone = experiment.find_isolated_runs(run)
            relative = [observed.settled_times(experiment, one).mean().mean() for one in lone.values()]
            more.append({
                "sigma_ms": 1e3 * sigma, "error_ms": 1e3 * spread_s(offsets, period), "bound_ms": 1e3 * noise_bound_s(sigma, 1.0, _i_over_s(experiment)),
                "alone": float(np.mean(relative)) if relative else np.nan,
            })  # fmt: skip
    table = pd.concat([table, pd.DataFrame(more)], axis="columns")
    return table, pair


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
    noisy = table[table["sigma_ms"] > 0]
    medians = {cc: _medians(noisy[noisy["cc"] == cc]) for cc in pair}
    found = medians[pair[1]]
    if not found:
        return not_measured(BOUND, BOUND_SOURCE, "no run with normal noise")
    measured_p = [p for run in study.runs if run.role == "treatment" and (p := exponent.fit_exponent(run)) is not None]
    treated = next(experiment for experiment in study.experiments if "treatment" in experiment.roles.values())
    wider = _wider(_i_over_s(treated), float(np.median(measured_p))) if measured_p else None
    below = [noise for noise, median in found.items() if median.value <= 1]
    corrected = wider is not None and all(median.value <= wider for median in found.values())
    worst = max(found, key=lambda noise: found[noise].value)
    base = medians[pair[0]].values()
    alike = len(below) == len(found) and len(base) > 0 and all(median.value <= 1 for median in base)
    return Finding(
        BOUND, BOUND_SOURCE,
        "standard deviation of the offset ÷ the bound as published (shares ∝ F), medians over seeds: "
        + "; ".join(f"{median} at {noise} noise" for noise, median in found.items())
        + ("" if wider is None else f"; ÷ the bound for shares ∝ F^{np.median(measured_p):.2f}, as measured in these runs: "
           + "; ".join(f"{median.value / wider:.2f} at {noise}" for noise, median in found.items()))
        + ("" if np.isnan(floor := _floor_ms(table, pair[1])) else f"; without noise the standard deviation is {floor:.2g} ms"),
        found[worst].value, f"of the bound as published, {worst} noise, median", found[worst].interval, found[worst].n,
        graded(len(below) == len(found), bool(below) or corrected, alike=alike),
        "reproduced if the median over seeds is below the bound as published at every level of noise, partly if at some or if all are below the "
        f"bound with the exponent that was measured, no difference if the base's are all below it as well; judged: the worst, {worst}",
        study.paths,
    )  # fmt: skip


def _medians(rows: pd.DataFrame) -> dict[str, Estimate]:
    """Error ÷ bound by noise: medians over seeds, which one stall of 200 ms in one seed does not decide."""
    shares = (rows["error_ms"] / rows["bound_ms"]).groupby(rows["noise"]).apply(list)
    return {
        str(noise): median(values) for noise, values in shares.sort_index(key=lambda names: names.map(_level)).items()
    }


def _wider(i_over_s: float, p: float) -> float:
    """By how much the bound is wider for shares ∝ F^p."""
    return noise_bound_s(1.0, 1.0, i_over_s, p) / noise_bound_s(1.0, 1.0, i_over_s)


def _robust(study: Study, table: pd.DataFrame, pair: tuple[str, str]) -> Finding:
    gains = {
        str(noise): observed.ratios(rows, *pair, "settled")
        for noise, rows in sorted(table.groupby("noise"), key=lambda one: _level(str(one[0])))
        if str(noise) != "0%"
    }
    gains = {noise: values for noise, values in gains.items() if values}
    if not gains:
        return not_measured(ROBUST, ROBUST_SOURCE, "no run with noise")
    sure = {noise: ratio_ends(values) for noise, values in gains.items()}
    good = [noise for noise, (low, _) in sure.items() if low > 1]
    alike = all(no_difference(found) for found in sure.values())
    verdict = graded(len(good) == len(gains), bool(good), alike=alike)
    worst = min(gains, key=lambda noise: geometric_mean(gains[noise]))
    return Finding(
        ROBUST, ROBUST_SOURCE,
        "speed-up of the mean, settled half: "
        + "; ".join(f"{observed.with_interval(values)}× at {noise}" for noise, values in gains.items()),
        geometric_mean(gains[worst]), f"× as fast, the least: {worst} noise", log_interval(gains[worst]), len(gains[worst]), verdict,
        f"reproduced if the speed-up is above 1 (the interval's lower end; without one, the least seed) at every noise, partly "
        f"at some, no difference if it is surely within {ALIKE:.0%} of 1 at all; judged: the least, {worst}",
        study.paths,
    )  # fmt: skip

"""SJF-BCO's equation 8 against the TCP stack: what contention costs, predicted and measured."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pandas as pd

from testbed.core.runs.load import LoadError, Run
from testbed.models.calibration import Cell, Fit, fit
from testbed.models.statistics import ends, estimate_ratio, geometric_mean, interval, log_interval, ratio_ends
from testbed.report import drawing, schedules, style
from testbed.report import observations as observed
from testbed.report.finding import Finding, graded, no_difference, not_measured_without
from testbed.report.study import Study

ID = "sjf-model"
POSITION = 440
PAPER = schedules.PAPER
TITLE = "SJF-BCO's model: what contention costs, predicted and measured"
TEXT = (
    "Equal jobs share the uplinks of two servers, p of them. Left, how much longer an iteration takes than alone (settled half, a dot a run), over what equation 8 "
    "says once it is fitted to the other half of the cells; on the line they agree, between the dotted lines within 10 %. Right, f: the fair share of how many jobs it is "
    "that each gets of the link while it sends, as fitted for each seed; the dashed line is f = p, jobs that always send together."
)
PREDICTS = "Equation 8, fitted to half of the cells, tells the base's iteration times in the other half to 10 %."
INTERLEAVES = "Under MLTCP contention costs less than under its base: fitted, it looks like that of fewer jobs."
SOURCES = {
    PREDICTS: "ours: the report simulates its model and validates it nowhere",
    INTERLEAVES: "ours: what interleaving would do to the report's ξ1",
}
CONTROLS = {
    PREDICTS: "iterations that take the less, the more jobs contend",
    INTERLEAVES: "iterations that take as long under MLTCP as under its base",
}
CLOSE, FAR = 0.10, 0.20


def draw(study: Study, out: Path) -> list[Path]:
    """Write ``sjf-model.{png,pdf,csv}``; the data: a row per run."""
    table = _table(study)
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
    left.set(xlabel="predicted: an iteration ÷ alone", ylabel="measured", title="Cells that it was not fitted to")
    left.legend(loc="upper left")
    right.plot(crowds, crowds, "--", color=style.REFERENCE, linewidth=1, label="f = p")
    right.set(xlabel="p: jobs on the uplink", ylabel="f", title="What contention costs, fitted", xticks=crowds)
    right.legend(loc="upper left")
    drawing.caption(figure, f"{drawing.setting(study.runs[0])}; {drawing.count(table['seed'].nunique(), 'seed')}")
    return drawing.save(figure, table, out, ID)


@not_measured_without(SOURCES)
def find(study: Study) -> list[Finding]:
    """Whether the model foretells the base, and what MLTCP makes of contention."""
    table = _table(study)
    fits = _fits(table)
    pair = observed.pair({run.system: run.role for run in study.runs})
    if pair is None:
        raise LoadError("there are no runs of both a base and MLTCP")
    return [_predicts(study, table, fits, pair[0]), _interleaves(study, table, fits, *pair)]


def _predicts(study: Study, table: pd.DataFrame, fits: Mapping[str, Mapping[int, Fit]], base: str) -> Finding:
    errors = {
        system: [found[seed].error(_cells(table, system, seed, held_out=True)) for seed in found]
        for system, found in fits.items()
    }
    low, high = ends(errors[base])
    others = ", ".join(f"{system} {np.mean(found):.1%}" for system, found in errors.items() if system != base)
    return Finding(
        PREDICTS, SOURCES[PREDICTS],
        f"{base}: off by {np.mean(errors[base]):.1%} in the mean of the cells that it was not fitted to ({others}); {_constants(base, fits[base])}",
        float(np.mean(errors[base])), f"of an iteration under {base}, the mean error", interval(errors[base]), len(errors[base]),
        graded(high <= CLOSE, low <= FAR and float(np.mean(errors[base])) <= FAR),
        f"reproduced if the mean error on held-out cells is surely at most {CLOSE:.0%} (95 % interval over seeds), partly if its mean is at most {FAR:.0%}",
        study.paths,
    )  # fmt: skip


def _interleaves(
    study: Study, table: pd.DataFrame, fits: Mapping[str, Mapping[int, Fit]], base: str, other: str
) -> Finding:
    most = int(table["p"].max())
    seeds = [seed for seed in fits[base] if seed in fits[other]]
    ratios = [fits[other][seed].degradation(most) / fits[base][seed].degradation(most) for seed in seeds]
    costs = {name: estimate_ratio([fits[name][seed].degradation(most) for seed in seeds]) for name in (base, other)}
    return Finding(
        INTERLEAVES, SOURCES[INTERLEAVES],
        f"{drawing.count(most, 'job')} on an uplink look like {costs[other]} under {other} and like {costs[base]} under {base}; {_constants(other, fits[other])}; "
        f"{_constants(base, fits[base])}",
        geometric_mean(ratios), f"of the base's f, at p = {most}", log_interval(ratios), len(ratios),
        graded(ratio_ends(ratios)[1] < 1, geometric_mean(ratios) < 1, alike=no_difference(ratio_ends(ratios))),
        "reproduced if the fitted f of MLTCP ÷ that of its base is surely below 1 (95 % interval over seeds), partly if in the mean",
        study.paths,
    )  # fmt: skip


def _constants(system: str, found: Mapping[int, Fit]) -> str:
    xi1, alpha = (np.mean([getattr(one, name) for one in found.values()]) for name in ("xi1", "alpha"))
    return f"{system}: ξ1 = {xi1:.2f}, α = {alpha:.2f}"


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
    return table.assign(held_out=rank % 2 == 1)[["system", "seed", "p", "ratio", "slowdown", "held_out", "timeouts"]]


def _ratio(run: Run) -> float:
    """Exchanging alone ÷ computing, of its jobs, which are alike."""
    job = run.jobs[0]
    computing_s = sum(op.duration_ns or 0 for op in job.operations) / 1e9
    if job.ideal_s is None or not computing_s:
        raise LoadError(f"{run.path}: its jobs compute nothing, or are real programs")
    return job.ideal_s / computing_s - 1

"""Fig. 3 of the paper: what happens inside one iteration."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from testbed.core.runs import metrics
from testbed.core.runs.load import Experiment, LoadError, Run
from testbed.models import statistics
from testbed.models.fluid import MLTCP_ACTIVE_FROM
from testbed.report import added_lines, drawing, exponent, fluid_comparison, style
from testbed.report.finding import Finding, graded, not_measured
from testbed.report.study import Study

ID = "concept"
POSITION = 20
TITLE = "Inside an iteration: bytes sent, F, congestion window and share of the link"
TEXT = (
    "Left, one iteration in which two jobs overlap (first seed): the share of its bytes that each flow has sent, F computed from "
    "that by the kernel, the congestion window, and what each job gets of the link (stacked). Job by job the window grows faster "
    "the more has been sent, so the job that began first finishes first. Right, every sample of every seed: F as the kernel reports it "
    "against S·r + I; and how the link is shared while both send, against the ratio of their F at that moment (bins of equal size, one "
    "dot each, both axes logarithmic), with the lines of shares ∝ F and ∝ √F. A window takes time to follow F, so the measured slope is the lower."
)
RULE = "The additive increase of a flow is multiplied by F(r) = S·r + I, where r is the share of the iteration's bytes that it has sent."
RULE_SOURCE = "paper, abstract and Fig. 3 [published]; the values of S and I [recalled, unconfirmed]"
LINES = "MLTCP takes 30 to 60 added lines for each of Reno, CUBIC and DCQCN."
LINES_SOURCE = "paper [published]"
FEW_LINES = 60
AHEAD = "Of two jobs that overlap, the one that is ahead gets more of the link."
AHEAD_SOURCE = "paper, Fig. 3 and 4 [published]"
SHOWN = MLTCP_ACTIVE_FROM + 1
BIN = 250
EVEN = 0.01  # of the link: a share so close to one half is one half
SPANNED = 0.9  # of the range of F, from I to S + I
CONTROLS = {
    LINES: "a base's file that gains 61 lines",
    RULE: "an F that stays at 1 although r is known",
    AHEAD: "shares that do not follow F (fluid model, exponent 0)",
}


def draw(study: Study, out: Path) -> list[Path]:
    """Write ``concept.{png,pdf,csv}``."""
    runs = _runs(study)
    if not runs:
        return []
    figure, axes = style.new_figure(1, 2, figsize=(12.0, 8.0), width_ratios=(1.5, 1))
    grid = axes[0, 0].get_gridspec()
    for axis in axes[0]:
        axis.remove()
    left = grid[0].subgridspec(4, 1, height_ratios=(1, 1, 1, 1.25)).subplots(sharex=True)
    table = _iteration(left, runs[0])
    upper, lower = grid[1].subgridspec(2, 1).subplots()
    _rule(upper, runs)
    _shares(lower, runs)
    drawing.caption(
        figure,
        f"{drawing.setting(runs[0])}; {runs[0].system}; {drawing.count(len(runs), 'seed')}, left: seed {runs[0].seed}, iteration {SHOWN}",
    )
    return drawing.save(figure, table, out, ID)


def find(study: Study) -> list[Finding]:
    """F is what it should be, who is ahead gets more, and how many lines that takes."""
    runs = _runs(study)
    if not runs:
        return [
            not_measured(claim, source, "there is no run of MLTCP with two jobs")
            for claim, source in ((RULE, RULE_SOURCE), (AHEAD, AHEAD_SOURCE), (LINES, LINES_SOURCE))
        ]
    return [_rule_finding(runs), _ahead_finding(runs), _lines_finding()]


def _lines_finding() -> Finding:
    own = {base: added_lines.added(name) for name, base in added_lines.BASES.items() if base != "DCTCP"}
    whole = {base: added_lines.executed(name) for name, base in added_lines.BASES.items() if base != "DCTCP"}
    return Finding(
        LINES, LINES_SOURCE,
        f"{', '.join(f'{base} {count}' for base, count in own.items())} lines beyond the base's own file; with all that they execute of the "
        f"shared headers {min(whole.values())} to {max(whole.values())}, most of it beyond the paper's rule, and at rest unless asked for",
        max(own.values()), "lines, the most of a base", None, 0,
        graded(max(whole.values()) <= FEW_LINES, max(own.values()) <= FEW_LINES),
        f"reproduced if all that is executed takes at most {FEW_LINES} lines, partly if what a base's own file gains does; counted in kernel/",
        (),
    )  # fmt: skip


def _rule_finding(runs: list[Run]) -> Finding:
    found = [_find_rule(run) for run in runs]
    worst, least = max(each.off for each in found), min(each.spanned for each in found)
    curve = fluid_comparison.curve(runs[0])
    samples = sum(each.samples for each in found)
    return Finding(
        RULE, RULE_SOURCE,
        f"from iteration {MLTCP_ACTIVE_FROM} on the kernel's F differs from {curve.slope:g} r + {curve.intercept:g} by at most {worst:.4f} in "
        f"{samples:,} samples, and goes through {least:.0%} of its range; that its base's increase is multiplied by exactly this is tested "
        "packet by packet (tests/unit/congestion/test_mltcp_core.py)",
        worst, "largest deviation of F", statistics.interval(each.off for each in found), len(runs),
        graded(worst <= 0.01 and least >= SPANNED, worst <= 0.01 and least > 0),
        f"reproduced if it differs by no more than 0.01 in any sample, those with F = 1 included, and goes through {SPANNED:.0%} of its range "
        "in every seed, partly if through less; an F that stays where it is does neither",
        tuple(run.path for run in runs),
    )  # fmt: skip


@dataclass(frozen=True)
class _Rule:
    """How far F is off the rule at most, which share of its range it goes through, and in how many samples."""

    off: float
    spanned: float
    samples: int


def _find_rule(run: Run) -> _Rule:
    curve = fluid_comparison.curve(run)
    phases = metrics.phases(run.iterations)
    known = run.flows.dropna(subset="mltcp_r")
    known = known[known["t_s"] >= phases.loc[phases["iteration"] >= MLTCP_ACTIVE_FROM, "begin_s"].min()]
    if known.empty:
        return _Rule(inf, 0.0, 0)
    ends = curve([0.0, 1.0])
    spanned = float(known["mltcp_f"].max() - known["mltcp_f"].min()) / max(float(np.ptp(ends)), 1e-9)
    return _Rule(float((known["mltcp_f"] - curve(known["mltcp_r"])).abs().max()), min(1.0, spanned), len(known))


def _ahead_finding(runs: list[Run]) -> Finding:
    shares, exponents = [], []
    for run in runs:
        rows = exponent.together(run)
        rows = rows[rows["force"].abs() > 0]
        if len(rows) < exponent.FEWEST:
            continue
        ahead = np.where(rows["force"] > 0, rows["share"], 1 - rows["share"])
        shares.append(float(ahead.mean()))
        exponents.append(exponent.slope(rows))
    if not shares:
        return not_measured(AHEAD, AHEAD_SOURCE, "the jobs never overlapped with F in force")
    found = statistics.mean(shares)
    low, high = found.interval or (found.value, found.value)
    even = low >= 0.5 - EVEN and high <= 0.5 + EVEN
    verdict = graded(low > 0.5 + EVEN, found.value > 0.5 + EVEN, alike=even)
    return Finding(
        AHEAD, AHEAD_SOURCE,
        f"the flow with the larger F gets {found.value:.1%} of the link while both send; a share goes as F to the power of {statistics.mean(exponents)} "
        "at that moment",
        found.value, "of the link, to the flow with the larger F", found.interval, found.n, verdict,
        f"reproduced if the 95 % interval lies above {0.5 + EVEN:g}, partly if the mean does, no difference if the share is surely within {EVEN:g} of one half",
        tuple(run.path for run in runs),
    )  # fmt: skip


def _runs(study: Study) -> list[Run]:
    experiments: list[Experiment] = [
        experiment for experiment in study.experiments if "treatment" in experiment.roles.values()
    ]
    if not experiments:
        return []
    cc = next(cc for cc, role in experiments[0].roles.items() if role == "treatment")
    return [run for run in experiments[0].runs_of(cc) if len(run.jobs) == 2 and "mltcp_f" in run.flows]


def _iteration(axes: Any, run: Run) -> pd.DataFrame:
    phases = metrics.phases(run.iterations)
    mine = phases[phases["iteration"] == SHOWN]
    if mine.empty:
        raise LoadError(f"{run.path}: has no iteration {SHOWN} to show; it takes at least {SHOWN + 1}")
    begin, end = float(mine["begin_s"].min()), float(mine["end_s"].max())
    margin = 0.06 * (end - begin)
    columns = {"mltcp_r": "bytes_ratio r", "mltcp_f": "F(r)", "cwnd_segments": "congestion\nwindow (segments)"}
    parts = []
    for job, flow in exponent.busiest(run).items():
        rows = flow[flow["t_s"].between(begin - margin, end + margin)]
        parts.append(rows[["t_s", "job", *columns]])
        phase = mine[mine["job"] == job].iloc[0]
        busy = rows["t_s"].between(phase["begin_s"], phase["end_s"])
        for axis, column in zip(axes, columns, strict=False):
            axis.plot(rows["t_s"] - begin, rows[column], color=style.JOBS[job], linewidth=1, alpha=0.25)
            axis.plot(
                rows["t_s"][busy] - begin, rows[column][busy], color=style.JOBS[job], linewidth=1.8, label=f"job {job}"
            )
    for axis, label in zip(axes, columns.values(), strict=False):
        axis.set_ylabel(label)
    unit, divisor = ("Gbit/s", 1e9) if run.rate_bps >= 5e9 else ("Mbit/s", 1e6)
    rates = metrics.throughput(run.flows, exponent.WINDOW_S)
    rates = rates[(rates.index > begin - margin) & (rates.index < end + margin)]
    axes[3].stackplot(
        rates.index - begin,
        *(rates[job] / divisor for job in rates),
        colors=style.JOBS[: len(rates.columns)],
        step="mid",
        linewidth=0,
    )
    axes[3].axhline(run.rate_bps / divisor, color=style.REFERENCE, linewidth=0.8, linestyle="--")
    axes[3].set_ylabel(f"goodput\n(stacked, {unit})")
    axes[3].set_xlabel("time since the first job of the two began to communicate (s)")
    for axis in axes:
        axis.set_xlim(-margin, end - begin + margin)
    axes[0].set_title(f"One iteration of two jobs: {run.system}")
    axes[0].legend(loc="lower right", ncols=2)
    return pd.concat(parts)


def _rule(axis: Any, runs: list[Run]) -> None:
    for run in runs:
        known = run.flows.dropna(subset="mltcp_r")
        known = known[known["mltcp_f"] != 1].sort_values("mltcp_r")
        axis.plot(
            known["mltcp_r"][::20],
            known["mltcp_f"][::20],
            "o",
            markersize=3,
            markeredgewidth=0,
            alpha=0.25,
            color=style.JOBS[0],
        )
    r = np.linspace(0, 1, 50)
    curve = fluid_comparison.curve(runs[0])
    axis.plot(
        r,
        curve(r),
        color=style.REFERENCE,
        linewidth=1.2,
        linestyle="--",
        label=f"{curve.slope:g} r + {curve.intercept:g}",
    )
    axis.plot([], [], "o", color=style.JOBS[0], markersize=4, label="the kernel's (every 20th sample)")
    axis.set(xlabel="bytes_ratio r", ylabel="F", title="F, as the kernel computes it")
    axis.legend(loc="upper left")


def _shares(axis: Any, runs: list[Run]) -> None:
    rows = pd.concat([exponent.together(run) for run in runs]).sort_values("force")
    x = np.exp(np.linspace(-2.1, 2.1, 3))
    axis.plot(x, x, color=style.REFERENCE, linewidth=1, linestyle="--", label="shares ∝ F")
    axis.plot(x, np.sqrt(x), color=style.REFERENCE, linewidth=1, linestyle=":", label="shares ∝ √F")
    size = min(BIN, max(5, len(rows) // 12))
    for at in range(0, len(rows) - size + 1, size):
        part = rows.iloc[at : at + size]
        share = part["share"].mean()
        axis.plot(
            np.exp(part["force"].mean()),
            share / (1 - share),
            "o",
            color=style.JOBS[0],
            markersize=5,
            markeredgewidth=0,
            alpha=0.8,
        )
    axis.plot(
        [],
        [],
        "o",
        color=style.JOBS[0],
        markersize=5,
        label=f"measured, {size} windows of {exponent.WINDOW_S * 1e3:g} ms each",
    )
    axis.set(
        xscale="log",
        yscale="log",
        xlabel="F of job 1 ÷ F of job 0",
        ylabel="goodput of job 1 ÷ of job 0",
        title="Who gets how much",
    )
    ticks = [0.125, 0.25, 0.5, 1, 2, 4, 8]
    for which in (axis.xaxis, axis.yaxis):
        which.set_major_locator(FixedLocator(ticks))
        which.set_minor_locator(NullLocator())
        which.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axis.legend(loc="upper left")

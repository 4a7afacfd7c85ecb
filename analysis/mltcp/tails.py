"""Where a 99th percentile could gain 4×: iterations that are short against a retransmission timeout."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd

from testbed.core.runs import measured
from testbed.models.statistics import geometric_mean, log_interval, ratio_ends
from testbed.report import drawing, style
from testbed.report import observations as observed
from testbed.report.cdf import ENOUGH
from testbed.report.finding import ALIKE, Finding, graded, no_difference, not_measured, not_measured_without
from testbed.report.study import Study

ID = "tails"
POSITION = 100
TITLE = "Tails: the shorter an iteration, the longer a timeout"
TEXT = (
    "The same packets in ever shorter iterations over ever faster links; only TCP's least retransmission timeout stays (200 ms, full "
    "lines; 5 ms, dashed). Left: 99th percentile of the settled half ÷ ideal (of all iterations the first ones, which are the base's by construction, would decide it); middle: timeouts per 100 iterations; right: how many times "
    "shorter the 99th percentile is under MLTCP. Of equal jobs on one link that is never idle, overlap alone cannot make an iteration longer than 2 − 1/n times the ideal (dotted): what is "
    "above comes from timeouts, which congestion causes and interleaving avoids."
)
CLAIM = "Up to 4× shorter 99th percentile of iteration times, where the base meets timeouts."
SOURCE = "paper, abstract [published]; the condition is ours"
CONTROLS = {CLAIM: "a 99th percentile that is as long under MLTCP as under the base"}
CLAIMED = 4.0
REACHED = 0.9  # of it


def draw(study: Study, out: Path) -> list[Path]:
    """Write ``tails.{png,pdf,csv}``; the data: a row per run."""
    table, pair = _table(study)
    figure, axes = style.new_figure(1, 3, figsize=(13.4, 4.6))
    for rto_ms, of_rto in table.groupby("rto_ms"):
        line = "-" if rto_ms == table["rto_ms"].max() else "--"
        for cc, marker in zip(pair, "so", strict=True):
            rows = of_rto[of_rto["cc"] == cc]
            for axis, column in ((axes[0, 0], "settled_p99"), (axes[0, 1], "per_hundred")):
                _line(
                    axis,
                    rows,
                    column,
                    drawing.colour(treatment=cc == pair[1]),
                    marker,
                    line,
                    f"{cc}, least timeout {rto_ms:g} ms",
                )
        _line(
            axes[0, 2],
            observed.speed_ups(of_rto, pair, "settled_p99", ["ideal_ms"]),
            "speed_up",
            drawing.MLTCP,
            "o",
            line,
            f"least timeout {rto_ms:g} ms",
        )
    jobs = int(table["jobs"].iloc[0])
    ceiling = 1 + float(table["load"].iloc[0]) * (1 - 1 / jobs)
    axes[0, 0].axhline(ceiling, color=style.REFERENCE, linewidth=1, linestyle=":", label="overlap alone, at most")
    axes[0, 0].set_ylabel("99th percentile ÷ ideal")
    axes[0, 0].set_ylim(0.9, 1.05 * max(ceiling, float(table["settled_p99"].max())))
    axes[0, 1].set_ylabel("timeouts per 100 iterations")
    axes[0, 1].set_ylim(0, max(1.0, 1.05 * float(table["per_hundred"].max())))
    axes[0, 2].axhline(1, color=style.REFERENCE, linewidth=0.8)
    axes[0, 2].axhline(CLAIMED, color=style.REFERENCE, linewidth=1, linestyle="-.", label="claimed, at most")
    axes[0, 2].set_ylabel(f"{pair[0]} ÷ {pair[1]}")
    for axis, title in zip(
        axes[0], ("99th percentile, settled half", "TCP's timeouts", "Speed-up of the 99th percentile"), strict=True
    ):
        drawing.plain_log(axis.xaxis)
        axis.set_xlabel("iteration alone (ms)")
        axis.set_title(title)
    axes[0, 2].legend(fontsize=8)
    handles, labels = axes[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper center", ncols=len(labels), fontsize=9)
    drawing.caption(
        figure,
        f"{drawing.count(jobs, 'job')}, together {table['load'].iloc[0]:.0%} of the link, queue {table['buffer_bytes'].iloc[0]:,} B, "
        f"{drawing.count(study.runs[0].jobs[0].iterations, 'iteration')}; {drawing.count(table['seed'].nunique(), 'seed')} (dots), means, 95 % intervals (cut at the edge); "
        f"{drawing.backend(study.runs[0])}. Lines only guide the eye.",
    )
    return drawing.save(figure, table, out, ID)


@not_measured_without({CLAIM: SOURCE})
def find(study: Study) -> list[Finding]:
    """One finding: the largest speed-up of the 99th percentile of the settled half."""
    table, pair = _table(study)
    gains, whole = {}, {}
    for (rto_ms, ideal_ms), rows in table.groupby(["rto_ms", "ideal_ms"]):
        if values := observed.ratios(rows, *pair, "settled_p99"):
            where = _where(ideal_ms, rto_ms)
            gains[where], whole[where] = values, observed.ratios(rows, *pair, "p99")
    if not gains:
        return [not_measured(CLAIM, SOURCE, "no seed was run under both a base and MLTCP")]
    best = max(gains, key=lambda where: geometric_mean(gains[where]))
    values, (low, high) = gains[best], ratio_ends(gains[best])
    pooled, count = _pooled(study, pair, best)
    return [
        Finding(
            CLAIM, SOURCE,
            "99th percentile, times shorter once settled, and over all iterations, the learning ones included: "
            + "; ".join(f"{where} {observed.with_interval(one)} and {observed.with_interval(whole[where])}" for where, one in gains.items()),
            pooled, f"× shorter 99th percentile, settled, {best} (pooled over jobs and seeds, {drawing.count(count, 'iteration')}; its interval by seed)",
            log_interval(values), len(values),
            graded(pooled >= REACHED * CLAIMED and count >= ENOUGH, low > 1 + ALIKE, alike=no_difference((low, high))),
            f"reproduced if the largest speed-up of the settled half is at least {REACHED * CLAIMED:g}× over {drawing.count(ENOUGH, 'iteration')} or more, partly if it is above 1.02× (the interval's lower "
            f"end; without one, the least seed), no difference if it is surely within {ALIKE:.0%} of 1; the largest of {len(gains)} points is picked, and its interval does not make up for that",
            study.paths,
        )
    ]  # fmt: skip


def _where(ideal_ms: object, rto_ms: object) -> str:
    return f"iterations of {ideal_ms:.0f} ms, least timeout {rto_ms:g} ms"


def _pooled(study: Study, pair: tuple[str, str], where: str) -> tuple[float, int]:
    """The speed-up of the 99th percentile of all jobs' and seeds' settled iterations at a point, and of how many it is."""
    experiment = next(
        one for one in study.experiments
        if where == _where(round(1e3 * measured.ideals_s(one.runs[0])[0], 1), one.runs[0].plan.rto_min_ms)
    )  # fmt: skip
    (before, _), (after, count) = (observed.pooled_p99(experiment, system) for system in pair)
    return before / after, count


def _table(study: Study) -> tuple[pd.DataFrame, tuple[str, str]]:
    table, pair = observed.compared(study)
    return table.assign(
        rto_ms=[run.plan.rto_min_ms for run in study.runs],
        ideal_ms=[round(1e3 * measured.ideals_s(run)[0], 1) for run in study.runs],
        per_hundred=[
            100 * timeouts / sum(job.iterations for job in run.jobs)
            for timeouts, run in zip(table["timeouts"], study.runs, strict=True)
        ],
    ), pair


def _line(axis: Any, rows: pd.DataFrame, column: str, colour: str, marker: str, line: str, label: str) -> None:
    """`drawing.trend`, full or dashed."""
    if rows.empty:
        return
    drawing.trend(axis, rows, "ideal_ms", column, colour, label=label, marker=marker, ratios=column != "per_hundred")
    axis.lines[-1].set_linestyle(line)

"""Where a 99th percentile could gain 4×: iterations that are short against a retransmission timeout."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd

from testbed.core.runs import measured
from testbed.core.runs.load import Experiment
from testbed.report import drawing, style
from testbed.report import observations as observed
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
CLAIMED = 4.0


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
    pooled = pd.concat(
        [observed.pooled_gains(experiment).assign(**_point(experiment)) for experiment in study.experiments]
    )
    return [*drawing.save(figure, table, out, ID), *drawing.write_tables({f"{ID}-p99": pooled}, out)]


def _point(experiment: Experiment) -> dict[str, float]:
    run = experiment.runs[0]
    return {"rto_ms": run.plan.rto_min_ms, "ideal_ms": round(1e3 * measured.ideals_s(run)[0], 1)}


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

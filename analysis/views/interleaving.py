"""Per-job link throughput over time and iteration times, one column per congestion control.

After Fig. 1 of the MLTCP paper: under the base algorithm the jobs' communication phases
overlap, under MLTCP they slide apart. Drawn from the first seed; the upper panels are
payload acknowledged in windows of 20 ms or two samples, of the first and the last iterations.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
from matplotlib.ticker import MaxNLocator

from analysis import metrics, style
from analysis.load import Experiment, Run

SHOWN_ITERATIONS = 4


def draw(experiment: Experiment, out: Path) -> list[Path]:
    """Write ``interleaving.{png,pdf,csv}`` to ``out``; nothing if there is but one iteration."""
    if experiment.runs[0].iterations["iteration"].max() == 0:
        return []
    runs = [experiment.of(cc)[0] for cc in experiment.ccs]
    figure, axes = style.new_figure(3, len(runs), figsize=(5.2 * len(runs), 7.2), sharey="row")
    data = []
    top = max(float(metrics.pooled(metrics.iteration_times(run.iterations)).max()) for run in runs)
    for column, run in enumerate(runs):
        times = metrics.iteration_times(run.iterations)
        window = max(0.02, 2 * run.manifest["plan"]["sample_ns"] / 1e9)
        rates = metrics.throughput(run.flows, window)
        data.append(_tidy(run, rates))
        first, last = (
            SHOWN_ITERATIONS * float(metrics.pooled(part(SHOWN_ITERATIONS)).mean()) for part in (times.head, times.tail)
        )
        end = float(run.iterations["end_s"].max())
        _throughput(axes[0, column], run, rates, (0.0, first))
        axes[0, column].set_title(f"{run.cc}: the first {SHOWN_ITERATIONS} iterations")
        _throughput(axes[1, column], run, rates, (end - last, end))
        axes[1, column].set_title(f"{run.cc}: the last {SHOWN_ITERATIONS}")
        _iterations(axes[2, column], run, times, top, _references(experiment, run))
    for row in (0, 1):
        axes[row, 0].set_ylabel(f"goodput of each job\n(stacked, {_unit(runs[0])[0]})")
    axes[2, 0].set_ylabel("iteration time (s)")
    handles, labels = axes[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper center", ncols=len(labels))
    figure.text(0.01, -0.01, _caption(experiment, runs[0]), va="top", fontsize=8, color=style.REFERENCE)
    pd.concat(data).to_csv(_csv(out), index=False, float_format="%.6g")
    written = style.save(figure, out / "interleaving")
    return [*written, _csv(out)]


def _unit(run: Run) -> tuple[str, float]:
    """A unit of rates in which the link's has few digits."""
    return ("Gbit/s", 1e9) if run.rate_bps >= 5e9 else ("Mbit/s", 1e6)


def _csv(out: Path) -> Path:
    out.mkdir(parents=True, exist_ok=True)
    return out / "interleaving.csv"


def _tidy(run: Run, rates: pd.DataFrame) -> pd.DataFrame:
    rows = rates.rename_axis("t_s").reset_index().melt("t_s", var_name="job", value_name="goodput_bps")
    rows.insert(0, "cc", run.cc)
    return rows


def _throughput(axis: Any, run: Run, rates: pd.DataFrame, span: tuple[float, float]) -> None:
    shown = rates[(rates.index >= span[0]) & (rates.index <= span[1])]
    colours = [style.JOBS[int(job) % len(style.JOBS)] for job in shown.columns]
    axis.stackplot(
        shown.index, *(shown[job] / _unit(run)[1] for job in shown.columns), colors=colours, step="mid", linewidth=0,
        labels=[f"job {job}" for job in shown.columns],
    )  # fmt: skip
    axis.axhline(run.rate_bps / _unit(run)[1], color=style.REFERENCE, linewidth=0.8, linestyle="--")
    axis.set_xlim(*span)
    axis.set_xlabel("time (s)")


def _references(experiment: Experiment, run: Run) -> dict[int, tuple[str, float]]:
    """What each job's times compare with: its computed ideal, or for a real program its measured time alone."""
    alone = experiment.alone_of(run)
    found = {}
    for job in run.jobs:
        if job["ideal_s"] is not None:
            found[job["job"]] = ("ideal", float(job["ideal_s"]))
        elif job["job"] in alone:
            found[job["job"]] = ("alone", metrics.alone(metrics.iteration_times(alone[job["job"]].iterations)))
    return found


def _iterations(axis: Any, run: Run, times: pd.DataFrame, top: float, references: dict[int, tuple[str, float]]) -> None:
    for job in times.columns:
        axis.plot(
            times.index, times[job], marker="o", markersize=3, linewidth=1,
            color=style.JOBS[int(job) % len(style.JOBS)], label=f"job {job}",
        )  # fmt: skip
    levels: dict[tuple[str, float], str] = {}  # one line for all jobs that compare with the same
    for number, (what, seconds) in references.items():
        shared = (what, round(seconds, 4)) in levels or len(references) == 1
        levels[what, round(seconds, 4)] = style.REFERENCE if shared else style.JOBS[number % len(style.JOBS)]
    for (what, seconds), colour in levels.items():
        axis.axhline(seconds, color=colour, linewidth=0.8, linestyle="--")
        axis.annotate(
            f"{what} {seconds:.3f} s", (1, seconds), xycoords=("axes fraction", "data"), ha="right", va="top", fontsize=8,
            xytext=(0, -3), textcoords="offset points", color=colour,
        )  # fmt: skip
    learned = metrics.learned_at(run.iterations, run.flows)
    if learned is not None:
        axis.axvline(learned, color=style.REFERENCE, linewidth=0.8, linestyle=":")
        axis.annotate(
            "F in force", (learned, 1), xycoords=("data", "axes fraction"), ha="left", va="top",
            xytext=(4, -2), textcoords="offset points", fontsize=8, color=style.REFERENCE,
        )  # fmt: skip
    lowest = min([*(seconds for _, seconds in levels), *metrics.pooled(times)])
    axis.set_ylim(0.9 * lowest, 1.06 * max(top, 1.05 * lowest))
    axis.xaxis.set_major_locator(MaxNLocator(integer=True))
    axis.set_xlabel("iteration")
    axis.set_title(f"{run.cc}: every iteration")


def _caption(experiment: Experiment, run: Run) -> str:
    plan = run.manifest["plan"]
    link = plan["link"]
    lines = [
        f"{len(plan['jobs'])} jobs ({', '.join(dict.fromkeys(job['trace'] for job in plan['jobs']))}), {plan['topology']}, "
        f"{link['rate_bps'] / _unit(run)[1]:g} {_unit(run)[0]}, buffer {link['buffer_bytes']:,} B, MTU {link['mtu']}, seed {run.seed}; "
        f"{run.manifest['substrate']}, {run.manifest['kernel'].split(' #')[0]}; verdict "
        + ", ".join(f"{cc} {experiment.of(cc)[0].verdict['verdict']}" for cc in experiment.ccs)
    ]
    return "\n".join(lines + [f"Assumption: {text}." for text in plan.get("assumptions", [])])

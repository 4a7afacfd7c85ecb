"""The rate over the bottleneck, and iteration times, one column per congestion control.

After Fig. 1 of the MLTCP paper: under the base algorithm the jobs' communication phases
overlap, under MLTCP they interleave. Drawn from the first seed; the upper panels are the
busiest direction of a bottleneck in windows of 20 ms, or shorter for short iterations, of the first and the last iterations.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.ticker import MaxNLocator

from testbed.core.runs import metrics
from testbed.core.runs.load import Experiment, Run
from testbed.core.text import decimal
from testbed.models import bottleneck
from testbed.report import drawing, style
from testbed.report.views import panels

SHOWN_ITERATIONS = 4
WINDOW_S = 0.02
COARSE = 0.25  # fraction of the shortest iteration; longer windows blur the shares of jobs


def draw(experiment: Experiment, out: Path) -> list[Path]:
    """Write ``interleaving.{png,pdf,csv}`` to ``out``; nothing with a single iteration, or without samples."""
    if experiment.runs[0].iterations["iteration"].max() == 0 or any(run.flows.empty for run in experiment.runs):
        return []
    runs = [experiment.runs_of(cc)[0] for cc in experiment.systems]
    link = bottleneck.busiest(runs)
    blocks, across = panels.grid(len(runs))
    rows = 3 if any(len(run.times) > SHOWN_ITERATIONS for run in runs) else 2  # the first iterations may be all
    figure, axes = style.new_figure(
        rows * blocks, across, figsize=((5.2 if across < 3 else 3.6) * across, 2.4 * rows * blocks), sharey="row"
    )
    data = []
    top = max(float(metrics.pooled(run.times).max()) for run in runs)
    for place, run in enumerate(runs):
        column, row = place % across, rows * (place // across)
        times = run.times
        rates = _rates(run, link)
        data.append(_tidy(run, rates))
        shown = min(SHOWN_ITERATIONS, len(times))
        first, last = (
            shown * float(metrics.pooled(part(SHOWN_ITERATIONS)).mean()) for part in (times.head, times.tail)
        )
        end = float(run.iterations["end_s"].max())
        name = panels.heading(run.system) + (": " if across < 3 else "\n")
        _throughput(axes[row, column], run, link, rates, (0.0, first if rows == 3 else end))
        axes[row, column].set_title(f"{name}the first {drawing.count(shown, 'iteration')}")
        if rows == 3:
            _throughput(axes[row + 1, column], run, link, rates, (end - last, end))
            axes[row + 1, column].set_title(f"{name}the last {shown}")
        _iterations(axes[row + rows - 1, column], run, times, top, _references(experiment, run))
        axes[row + rows - 1, column].set_title(f"{name}every iteration")
    unit = _unit(runs[0])[0]
    for place in range(len(runs), blocks * across):  # panels without a system
        for row in range(rows):
            axes[rows * (place // across) + row, place % across].remove()
    for row in range(rows * blocks):
        axes[row, 0].set_ylabel(
            "iteration time (s)"
            if row % rows == rows - 1
            else f"sum of all flows of each job\n(stacked, {unit})"
            if link is None
            else f"{panels.arrow(link)}, each job\n(stacked, {unit})"
        )
    jobs = panels.share_patches(runs[0]) if link else panels.job_patches(runs[0])
    figure.legend(handles=jobs, loc="outside upper center", ncols=min(len(jobs), 8))
    drawing.caption(figure, *_caption(runs, link).split("\n"))
    drawing.write_table(pd.concat(data), _csv(out))
    written = style.save(figure, out / "interleaving")
    return [*written, _csv(out)]


def _rates(run: Run, link: str | None) -> pd.DataFrame:
    """In bit/s, a column per job: what crosses ``link``; without one the payload acknowledged over all flows."""
    window_s = _window_s(run)
    return metrics.throughput(run.flows, window_s) if link is None else bottleneck.carried(run, link, window_s)


def _window_s(run: Run) -> float:
    return max(min(WINDOW_S, float(metrics.pooled(run.times).mean()) / 100), 2 * run.plan.sample_ns / 1e9)


def _unit(run: Run) -> tuple[str, float]:
    """A unit of rates in which the link's has few digits."""
    return ("Gbit/s", 1e9) if run.rate_bps >= 5e9 else ("Mbit/s", 1e6)


def _csv(out: Path) -> Path:
    return out / "interleaving.csv"


def _tidy(run: Run, rates: pd.DataFrame) -> pd.DataFrame:
    rows = rates.rename_axis("t_s").reset_index().melt("t_s", var_name="job", value_name="bps")
    rows.insert(0, "cc", run.system)
    return rows


def _throughput(axis: Any, run: Run, link: str | None, rates: pd.DataFrame, span: tuple[float, float]) -> None:
    unit = _unit(run)[1]
    shown = rates[(rates.index >= span[0]) & (rates.index <= span[1])]
    axis.stackplot(
        shown.index, *(shown[job] / unit for job in shown.columns), colors=[panels.colour(job) for job in shown.columns],
        step="mid", linewidth=0,
    )  # fmt: skip
    axis.set_xlim(*span)
    axis.set_xlabel("time (s)")
    if link is None:
        return
    t, rate = _line(run, link, span)
    axis.step(t, rate / unit, where="post", color=style.REFERENCE, linewidth=1, linestyle="--")
    axis.annotate(
        f"the link's rate, {drawing.rate(rate[0])}", (0, rate[0] / unit), xycoords=("axes fraction", "data"), ha="left",
        va="bottom", fontsize=8, xytext=(3, 2), textcoords="offset points", color=style.REFERENCE,
    )  # fmt: skip
    axis.set_ylim(0, 1.14 * bottleneck.rate_bps(run, link) / unit)


def _line(run: Run, link: str, span: tuple[float, float]) -> tuple[np.ndarray, np.ndarray]:
    """The rate of ``link`` over a span of time, in bit/s: steps where events change it."""
    rate = bottleneck.rate_bps(run, link)
    t, rates = [span[0]], [rate]
    for event in run.plan.events:
        if event.link == link and event.rate_bps is not None and event.at_ns / 1e9 < span[1]:
            t.append(max(span[0], event.at_ns / 1e9))
            rates.append(float(event.rate_bps))
    return np.array([*t, span[1]]), np.array([*rates, rates[-1]])


def _references(experiment: Experiment, run: Run) -> dict[int, tuple[str, float]]:
    """The reference of each job's times: its computed ideal, or for a real program its measured time in isolation."""
    alone = experiment.find_isolated_runs(run)
    found = {}
    for job in run.jobs:
        if job.ideal_s is not None:
            found[job.job] = ("ideal", job.ideal_s)
        elif job.job in alone:
            found[job.job] = ("in isolation", metrics.alone(alone[job.job].times))
    return found


def _iterations(axis: Any, run: Run, times: pd.DataFrame, top: float, references: dict[int, tuple[str, float]]) -> None:
    for job in times.columns:
        axis.plot(
            times.index, times[job], marker="o", markersize=3, linewidth=1, color=panels.colour(int(job)),
        )  # fmt: skip
    levels: dict[tuple[str, float], str] = {}  # one line for all jobs that compare with the same
    for number, (what, seconds) in references.items():
        shared = (what, round(seconds, 4)) in levels or len(references) == 1
        levels[what, round(seconds, 4)] = style.REFERENCE if shared else panels.colour(number)
    lowest = min([*(seconds for _, seconds in levels), *metrics.pooled(times)])
    highest = max(top, 1.05 * lowest)
    margin = 0.14 * (highest - lowest)
    near: list[list[tuple[str, float]]] = []  # one label for lines that are too close for two
    for what, seconds in sorted(levels, key=lambda level: level[1]):
        axis.axhline(seconds, color=levels[what, seconds], linewidth=0.8, linestyle="--")
        if near and near[-1][-1][0] == what and seconds - near[-1][-1][1] < margin:
            near[-1].append((what, seconds))
        else:
            near.append([(what, seconds)])
    late = float(min(metrics.pooled(times.tail(max(1, len(times) // 4)))))  # the label is below these points
    for group in near:
        what, seconds = group[0]
        below = late if seconds - margin < late < seconds else seconds
        axis.annotate(
            f"{what} {', '.join(f'{level:.3f}' for _, level in group)} s", (1, below), xycoords=("axes fraction", "data"), ha="right", va="top", fontsize=8,
            xytext=(0, -3), textcoords="offset points", color=levels[what, seconds] if len(group) == 1 else style.REFERENCE,
        )  # fmt: skip
    learned = metrics.mltcp_active_from(run.iterations, run.flows, [job.job for job in run.jobs if job.cc.is_mltcp])
    if learned is not None:
        axis.axvline(learned, color=style.REFERENCE, linewidth=0.8, linestyle=":")
        axis.annotate(
            "MLTCP active", (learned, 1), xycoords=("data", "axes fraction"), ha="left", va="top",
            xytext=(4, -2), textcoords="offset points", fontsize=8, color=style.REFERENCE,
        )  # fmt: skip
    axis.set_ylim(lowest - margin, highest + margin / 2)
    axis.xaxis.set_major_locator(MaxNLocator(integer=True))
    axis.set_xlabel("iteration")


def _caption(runs: Sequence[Run], link: str | None) -> str:
    run = runs[0]
    plan = run.plan
    names = ", ".join(dict.fromkeys(job.trace for job in plan.jobs))
    lines = [
        f"{drawing.count(len(plan.jobs), 'job')} ({names}), {Path(plan.topology).name}, {drawing.link_rate(run, link)}, "
        + ("" if drawing.is_model(run) else f"{drawing.queue(run, link)}, MTU {plan.link.mtu:,}{drawing.wires(run)}, ")
        + f"seed {run.seed}; "
        f"{drawing.backend(run)}{panels.still_wires(run)}. {panels.verdicts(runs)}."
    ]
    if link is None:
        carried = "carried" if drawing.is_model(run) else "acknowledged"
        lines.append(f"Above: payload {carried} over all flows of a job, in both directions and over all links.")
    else:
        lines.append(_what_is_shown(run, link))
    lines += [text for text in [_too_coarse(runs)] if text]
    return "\n".join(lines + [f"Assumption: {text}." for text in plan.assumptions])


def _too_coarse(runs: Sequence[Run]) -> str:
    """A sentence, if windows are too long to show which job sends when; else empty."""
    window_s = max(map(_window_s, runs))
    shortest_s = min(float(metrics.pooled(run.times).min()) for run in runs)
    if window_s <= COARSE * shortest_s:
        return ""
    return (
        f"Bins of {decimal(window_s * 1e3, 3)} ms are too long for iterations of {decimal(shortest_s * 1e3, 3)} ms: "
        "the rates do not show which job sends when."
    )


def _what_is_shown(run: Run, link: str) -> str:
    found = bottleneck.crossings(run) or {}
    jobs = sorted({job for job, _, _ in found[link]})
    who = (
        "all jobs cross it"
        if len(jobs) == len(run.jobs)
        else f"job {jobs[0]} crosses it"
        if len(jobs) == 1
        else f"jobs {', '.join(map(str, jobs))} cross it"
    )
    which = f"; of {len(found)} directions of bottlenecks the busiest ({who})" if len(found) > 1 else ""
    if drawing.is_model(run):
        return f"Above: the rates that the model gives to flows over {panels.arrow(link)}, headers included{which}."
    return (
        f"Above: what crosses {panels.arrow(link)}, headers included, by its queue's counters{which}.\nEach job's share is computed "
        f"from acknowledged bytes.{panels.rest(run)}"
    )

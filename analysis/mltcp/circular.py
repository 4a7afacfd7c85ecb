"""Fig. 2 of the paper: three jobs on a loop of three links, which no loop-free affinity graph can express."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from testbed.core.runs.load import Experiment, LoadError, Run
from testbed.models import bottleneck
from testbed.report import drawing, style
from testbed.report import observations as observed
from testbed.report.study import Study
from testbed.schedulers.job import cassini

ID = "circular"
POSITION = 160
TITLE = "A circular dependency: three jobs, each of which shares one link with each other job"
TEXT = (
    "Left: which job crosses which bottleneck. The graph has a loop, so that shifts which are right link by link need not agree "
    "with each other; CASSINI, whose affinity graph must not have one, refuses the placement. Middle: the communication phases "
    "of the last iterations, first seed; two jobs never meet where bars of one row do not overlap in time. Right: every iteration's time, "
    "mean over the jobs, one line a seed. One row for each kind of hosts' NICs and least retransmission timeout: where links drop, a job that begins "
    "while the queue is full with its neighbour's packets may lose most of its first window and wait for a timeout."
)
SHOWN = 3  # iterations
Node = tuple[str, int | str]  # "job" and its number, or "link" and its name


def draw(study: Study, out: Path) -> list[Path]:
    """Write ``circular.{png,pdf,csv}``; the data: a row per run."""
    rings = _rings(study)
    figure, axes = style.new_figure(
        len(rings), 3, figsize=(13, 0.6 + 3.7 * len(rings)), width_ratios=[0.8, 1.25, 1.1], sharex="col", sharey="col"
    )
    for axis in axes[:, 0]:
        axis.remove()
    _graph(figure.add_subplot(axes[0, 0].get_gridspec()[:, 0]), affinity(rings[0][0].runs[0]))
    nics = [
        "unlimited" if run.plan.sender.nic_bps is None else f"{run.plan.sender.nic_bps / run.rate_bps:.0%}"
        for run in study.runs
    ]
    table = observed.table(study).assign(rto_ms=[run.plan.rto_min_ms for run in study.runs], nic=nics)
    for row, (experiment, pair) in zip(axes, rings, strict=True):
        _phases(row[1], experiment, pair)
        _iterations(row[2], experiment, pair)
        row[1].set_title(f"Last {drawing.count(SHOWN, 'iteration')}, {_short(experiment)}", fontsize=10)
        row[2].set_title(f"Timeouts a run: {_timeouts(table, experiment, pair)}", fontsize=10)
    axes[0, 2].legend(title="mean over the jobs")
    for axis, label in zip(axes[-1, 1:], ("time (s)", "iteration"), strict=True):
        axis.set_xlabel(label)
    first = rings[0][0].runs[0]
    drawing.caption(
        figure,
        f"{drawing.setting(first)}; {drawing.count(len(first.jobs), 'job')}, duty {observed.duty(first, 0):.0%} each; {drawing.count(table['seed'].nunique(), 'seed')}.",
    )
    return drawing.save(figure, table, out, ID)


def _timeouts(table: pd.DataFrame, experiment: Experiment, pair: tuple[str, str]) -> str:
    rows = table[table["experiment"] == experiment.path.name]
    return ", ".join(f"{cc} {rows[rows['cc'] == cc]['timeouts'].mean():.0f}" for cc in pair)


def _short(experiment: Experiment) -> str:
    """`_setting` for a title."""
    plan = experiment.runs[0].plan
    return f"RTO ≥ {plan.rto_min_ms:g} ms, NICs {'unlimited' if plan.sender.nic_bps is None else 'as links'}"


def affinity(run: Run) -> list[tuple[int, str]]:
    """Edges of the affinity graph: (job, direction of a bottleneck that it crosses); raises `LoadError` if it was not recorded."""
    found = bottleneck.crossings(run)
    if found is None:
        raise LoadError(f"{run.path} does not say which links its flows cross; run it again")
    return sorted({(job, link) for link, flows in found.items() for job, _, _ in flows})


def has_loop(edges: list[tuple[int, str]]) -> bool:
    """Whether jobs and the links that they cross form one."""
    links = {link for _, link in edges}
    return cassini.has_loop([frozenset(job for job, there in edges if there == link) for link in links])


def _rings(study: Study) -> list[tuple[Experiment, tuple[str, str]]]:
    """Experiments on a ring, with their base and MLTCP; NICs as fast as links first, and of those the longest timeout."""
    found = [
        (experiment, pair)
        for experiment in study.experiments
        if (pair := observed.pair(experiment.roles)) and experiment.runs[0].plan.topology == "ring"
    ]
    if not found:
        raise LoadError("circular: there is no ring with both a base and MLTCP; run experiments/circular.toml")
    return sorted(found, key=lambda one: (one[0].runs[0].plan.sender.nic_bps is None, -one[0].runs[0].plan.rto_min_ms))


def _graph(axis: Any, edges: list[tuple[int, str]]) -> None:
    """Jobs and bottlenecks on one circle, each job between the two it crosses."""
    jobs, links = sorted({job for job, _ in edges}), sorted({link for _, link in edges})
    angle: dict[Node, float] = {("link", link): 90 - 360 * i / len(links) for i, link in enumerate(links)}
    for job in jobs:
        around = np.exp(1j * np.radians([angle["link", link] for one, link in edges if one == job])).sum()
        angle["job", job] = float(np.degrees(np.angle(around)))
    at = {node: (np.cos(np.radians(one)), np.sin(np.radians(one))) for node, one in angle.items()}
    for job, link in edges:
        (x0, y0), (x1, y1) = at["job", job], at["link", link]
        axis.plot([x0, x1], [y0, y1], color=style.JOBS[job % len(style.JOBS)], linewidth=3, zorder=1)
    for (kind, name), (x, y) in at.items():
        job_colour = style.JOBS[name % len(style.JOBS)] if isinstance(name, int) else None
        box = {"boxstyle": "circle,pad=0.5" if job_colour else "square,pad=0.5", "linewidth": 1.5, "edgecolor": style.REFERENCE,
               "facecolor": job_colour or "white"}  # fmt: skip
        axis.text(x, y, f"{kind} {name}", ha="center", va="center", fontsize=9, bbox=box,
                  color="white" if job_colour else "black", zorder=2)  # fmt: skip
    axis.set_xlim(-1.5, 1.5)
    axis.set_ylim(-1.4, 1.4)
    axis.set_aspect("equal")
    axis.axis("off")
    axis.set_title("Affinity graph" + (": a loop" if has_loop(edges) else ""))


def _phases(axis: Any, experiment: Experiment, pair: tuple[str, str]) -> None:
    ticks = []
    for row, cc in enumerate(pair):
        run = experiment.runs_of(cc)[0]
        sender = run.iterations[run.iterations["worker"] == 0]
        ends = sender.groupby("job")["end_s"].max()
        end = float(ends.min())
        span = SHOWN * float(run.times.tail(SHOWN).mean().mean())
        for job in ends.index:
            rows = sender[sender["job"] == job]
            y = row * (len(ends) + 1) + int(job)
            shown = rows[(rows["end_s"] > end - span) & (rows["comm_start_s"] < end)]
            axis.barh(
                [y] * len(shown), shown["end_s"] - shown["comm_start_s"], left=shown["comm_start_s"] - (end - span), height=0.8,
                color=style.JOBS[int(job) % len(style.JOBS)],
            )  # fmt: skip
            ticks.append((y, f"job {job}"))
        axis.text(0.0, row * (len(ends) + 1) - 0.55, cc, fontsize=9, fontweight="bold", va="bottom")
    axis.set_yticks([y for y, _ in ticks], [text for _, text in ticks])
    axis.set_xlim(left=0)
    axis.set_ylim(ticks[-1][0] + 0.6, -1.3)
    axis.grid(visible=False, axis="y")


def _iterations(axis: Any, experiment: Experiment, pair: tuple[str, str]) -> None:
    for cc in pair:
        lines = [observed.relative_times(experiment, run).mean(axis="columns") for run in experiment.runs_of(cc)]
        for line in lines:
            axis.plot(line.index, line, color=drawing.colour(treatment=cc == pair[1]), linewidth=0.7, alpha=0.45)
        mean = pd.concat(lines, axis="columns").mean(axis="columns")
        axis.plot(mean.index, mean, color=drawing.colour(treatment=cc == pair[1]), linewidth=2.2, label=cc)
    axis.axhline(1, color=style.REFERENCE, linewidth=0.8, linestyle="--")
    axis.set_ylabel("iteration time ÷ ideal")

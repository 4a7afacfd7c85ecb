"""Fig. 2 of the paper: three jobs on a loop of three links, which no loop-free affinity graph can express."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from analysis import drawing, measured, style
from analysis import observations as observed
from analysis.finding import Finding, graded, not_measured
from analysis.load import Experiment, LoadError, Run
from analysis.statistics import interval
from analysis.study import Study

ID = "circular"
TITLE = "A circular dependency: three jobs, each of which shares one link with each other job"
TEXT = (
    "Left: which job crosses which bottleneck. The graph has a loop, so that shifts which are right link by link need not agree "
    "with each other; CASSINI, whose affinity graph must not have one, refuses the placement. Middle: the communication phases "
    "of the last iterations, first seed; two jobs never meet where bars of one row do not overlap in time. Right: every iteration's time, "
    "mean over the jobs, one line a seed."
)
LOOP = "A circular dependency between jobs and links is what a loop-free affinity graph (CASSINI) cannot handle."
LOOP_SOURCE = "paper, caption of Fig. 2 [published]; the reason [recalled]"
CLAIM = "MLTCP interleaves jobs with a circular dependency."
SOURCE = "paper, Fig. 2 [published]"
SHOWN = 3  # iterations


def draw(study: Study, out: Path) -> list[Path]:
    """Write ``circular.{png,pdf,csv}``; the data: a row per run."""
    experiment, pair = _only(study)
    figure, axes = style.new_figure(1, 3, figsize=(13, 4.2), width_ratios=[0.8, 1.25, 1.1])
    _graph(axes[0, 0], crossed(experiment.runs[0]))
    _phases(axes[0, 1], experiment, pair)
    _iterations(axes[0, 2], experiment, pair)
    table = observed.table(study)
    drawing.caption(
        figure,
        f"{drawing.setting(experiment.runs[0])}; {len(experiment.runs[0].jobs)} jobs, duty "
        f"{observed.duty(experiment.runs[0], 0):.0%} each; {table['seed'].nunique()} seeds.",
    )
    return drawing.save(figure, table, out, ID)


def find(study: Study) -> list[Finding]:
    """Two findings: the loop, and how MLTCP does on it."""
    try:
        experiment, pair = _only(study)
    except LoadError as error:
        return [not_measured(claim, source, str(error)) for claim, source in ((LOOP, LOOP_SOURCE), (CLAIM, SOURCE))]
    edges = crossed(experiment.runs[0])
    loop = has_loop(edges)
    gains = observed.ratios(observed.table(study), *pair, "settled")
    at = {cc: [measured.interleaved_at(experiment, run) for run in experiment.of(cc)] for cc in pair}
    reached = {cc: sum(np.isfinite(one) for one in values) for cc, values in at.items()}
    found = interval(gains)
    good = (found or (min(gains),))[0] > 1
    all_reached = reached[pair[1]] == len(at[pair[1]])
    verdict = graded(all_reached and good, bool(reached[pair[1]]) or good)
    return [
        Finding(
            LOOP, LOOP_SOURCE,
            f"the affinity graph of this placement has {len(edges)} edges and {'a' if loop else 'no'} loop; with a loop "
            "`--cc cassini` ends with code 2 (tests/unit/test_experiments.py)",
            None, None, len(at[pair[0]]), graded(loop, False),
            "reproduced if the bipartite graph of jobs and shared bottlenecks has a loop",
            study.paths,
        ),
        Finding(
            CLAIM, SOURCE,
            f"every job within 5 % of its time alone from then on: {pair[1]} in {reached[pair[1]]} of {len(at[pair[1]])} seeds"
            + (f" (median: iteration {np.median([one for one in at[pair[1]] if np.isfinite(one)]):g})" if reached[pair[1]] else "")
            + f", {pair[0]} in {reached[pair[0]]} of {len(at[pair[0]])}; settled half {observed.with_interval(gains)}× as fast",
            float(np.mean(gains)), found, len(gains), verdict,
            "reproduced if MLTCP interleaves in every seed and its settled half is faster than the base's (the interval's lower end; "
            "without one, every seed), partly if one of the two holds for some",
            study.paths,
        ),
    ]  # fmt: skip


def crossed(run: Run) -> list[tuple[int, int]]:
    """Edges of the affinity graph of a ring: (job, bottleneck). A job from ``xi`` to ``yj`` crosses bottlenecks i to j, around."""
    links = run.manifest["plan"]["topology_args"][0]
    edges = []
    for job in run.jobs:
        first, last = (
            int(re.sub(r"\D", "", host.partition("_")[0])) - 1 for host in (job["hosts"][0], job["hosts"][-1])
        )
        edges += [(job["job"], (first + step) % links) for step in range((last - first) % links + 1)]
    return edges


def has_loop(edges: list[tuple[int, int]]) -> bool:
    """Whether the bipartite graph of jobs and links has a loop: an edge between what was connected already."""
    parent: dict[tuple[str, int], tuple[str, int]] = {}

    def root(node: tuple[str, int]) -> tuple[str, int]:
        while parent.setdefault(node, node) != node:
            node = parent[node]
        return node

    for job, link in edges:
        one, other = root(("job", job)), root(("link", link))
        if one == other:
            return True
        parent[one] = other
    return False


def _only(study: Study) -> tuple[Experiment, tuple[str, str]]:
    for experiment in study.experiments:
        pair = observed.pair(experiment.ccs)
        if pair is not None and experiment.runs[0].manifest["plan"]["topology"] == "ring":
            return experiment, pair
    raise LoadError("circular: there is no ring with both a base and MLTCP; run experiments/circular.toml")


def _graph(axis: Any, edges: list[tuple[int, int]]) -> None:
    """Jobs and bottlenecks on one circle, each job between the two it crosses."""
    jobs, links = sorted({job for job, _ in edges}), sorted({link for _, link in edges})
    angle = {("link", link): 90 - 360 * i / len(links) for i, link in enumerate(links)}
    for job in jobs:
        around = np.exp(1j * np.radians([angle["link", link] for one, link in edges if one == job])).sum()
        angle["job", job] = float(np.degrees(np.angle(around)))
    at = {node: (np.cos(np.radians(one)), np.sin(np.radians(one))) for node, one in angle.items()}
    for job, link in edges:
        (x0, y0), (x1, y1) = at["job", job], at["link", link]
        axis.plot([x0, x1], [y0, y1], color=style.JOBS[job % len(style.JOBS)], linewidth=3, zorder=1)
    for (kind, number), (x, y) in at.items():
        box = {"boxstyle": "circle,pad=0.5" if kind == "job" else "square,pad=0.5", "linewidth": 1.5, "edgecolor": style.REFERENCE,
               "facecolor": style.JOBS[number % len(style.JOBS)] if kind == "job" else "white"}  # fmt: skip
        axis.text(x, y, f"{kind} {number}", ha="center", va="center", fontsize=9, bbox=box,
                  color="white" if kind == "job" else "black", zorder=2)  # fmt: skip
    axis.set_xlim(-1.5, 1.5)
    axis.set_ylim(-1.4, 1.4)
    axis.set_aspect("equal")
    axis.axis("off")
    axis.set_title("Affinity graph" + (": a loop" if has_loop(edges) else ""))


def _phases(axis: Any, experiment: Experiment, pair: tuple[str, str]) -> None:
    ticks = []
    for row, cc in enumerate(pair):
        run = experiment.of(cc)[0]
        sender = run.iterations[run.iterations["worker"] == 0]
        ends = sender.groupby("job")["end_s"].max()
        end = float(ends.min())
        span = SHOWN * float(measured.times(run).tail(SHOWN).mean().mean())
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
    axis.set_xlabel("time (s)")
    axis.set_title(f"Communication phases, the last {SHOWN} iterations")


def _iterations(axis: Any, experiment: Experiment, pair: tuple[str, str]) -> None:
    for cc in pair:
        lines = [observed.relative_times(experiment, run).mean(axis="columns") for run in experiment.of(cc)]
        for line in lines:
            axis.plot(line.index, line, color=drawing.colour(cc), linewidth=0.7, alpha=0.45)
        mean = pd.concat(lines, axis="columns").mean(axis="columns")
        axis.plot(mean.index, mean, color=drawing.colour(cc), linewidth=2.2, label=cc)
    axis.axhline(1, color=style.REFERENCE, linewidth=0.8, linestyle="--")
    axis.set_xlabel("iteration")
    axis.set_ylabel("iteration time ÷ ideal")
    axis.set_title("Every iteration, mean over the jobs")
    axis.legend()

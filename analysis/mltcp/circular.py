"""Fig. 2 of the paper: three jobs on a loop of three links, which no loop-free affinity graph can express."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from testbed.core.runs.load import Experiment, LoadError, Run
from testbed.models import bottleneck
from testbed.models.statistics import median
from testbed.report import drawing, redrawing, style
from testbed.report import observations as observed
from testbed.report.figures import Tables
from testbed.report.study import Study
from testbed.schedulers.job import cassini

ID = "circular"
POSITION = 160
ALL_BASES = True
TITLE = "MLTCP interleaves three jobs on a loop of links, which CASSINI's loop-free affinity graph cannot express"
TEXT = (
    "Left: which job crosses which link; CASSINI refuses such a loop. Middle: mean iteration relative to the ideal, in steady state and of all iterations (open). "
    "Right: the first iteration from which all jobs are interleaved; dots are seeds, 95 % intervals. Minimum RTO 200 ms; with 5 ms nothing changes."
)
Node = tuple[str, int | str]  # "job" and its number, or "link" and its name
GRAPH = f"{ID}-graph"
LONGEST = 1.08  # of a run's iterations: where those are drawn that never interleave


def draw(study: Study, out: Path) -> list[Path]:
    """Write ``circular.{png,pdf,csv}``, a row per run, and ``circular-graph.csv``, a row per job and link that it crosses."""
    rings = [experiment for experiment, _ in _rings(study)]
    runs = [run for experiment in rings for run in experiment.runs]
    nics = [
        "unlimited" if run.plan.sender.nic_bps is None else f"{run.plan.sender.nic_bps / run.rate_bps:.0%}"
        for run in runs
    ]
    table = observed.table(Study(study.id, tuple(rings), ())).assign(
        base=[observed.base(run) for run in runs], rto_ms=[run.plan.rto_min_ms for run in runs], nic=nics,
        iterations=[run.jobs[0].iterations for run in runs],
    )  # fmt: skip
    graph = pd.DataFrame(affinity(runs[0]), columns=["job", "link"])
    note = f"{drawing.setting(runs[0])}; {drawing.count(len(runs[0].jobs), 'job')}, duty {observed.duty(runs[0], 0):.0%} each."
    return redrawing.publish(plot, {ID: table, GRAPH: graph}, note, out)


def plot(tables: Tables) -> Any:
    """The graph; a row for each base and condition: how long iterations take, and from which on jobs are interleaved."""
    table, graph = tables[ID], tables[GRAPH]
    table = table.assign(
        condition=[_condition(base, nic) for base, nic in zip(table["base"], table["nic"], strict=True)]
    )
    conditions = list(dict.fromkeys(table["condition"]))
    figure, axes = style.new_figure(1, 3, figsize=(12.5, 2.2 + 0.75 * len(conditions)), width_ratios=[1, 1.3, 1])
    first, times, soon = axes[0]
    _graph(first, [(int(job), str(link)) for job, link in zip(graph["job"], graph["link"], strict=True)])
    never = LONGEST * table["iterations"].max()
    for y, condition in enumerate(conditions):
        for aside, role in ((-0.17, "baseline"), (0.17, "treatment")):
            mine = table[(table["condition"] == condition) & (table["role"] == role)]
            mine = mine[mine["rto_ms"] == mine["rto_ms"].max()]
            colour, marker = drawing.colour(treatment=role == "treatment"), "o" if role == "treatment" else "s"
            drawing.across(times, y + aside, list(mine["settled"]), colour, marker=marker)
            drawing.across(times, y + aside, list(mine["mean"]), colour, marker=marker, fill=False)
            found = median(mine["interleaved_at"])
            soon.plot(
                mine["interleaved_at"].clip(upper=never),
                [y + aside] * len(mine),
                marker,
                color=colour,
                alpha=0.35,
                markersize=4,
            )
            soon.plot(
                min(found.value, never),
                y + aside,
                marker,
                color=colour,
                markersize=7,
                label=("MLTCP" if role == "treatment" else "base") if y == 0 else None,
            )
    times.axvline(1, color=style.REFERENCE, linewidth=0.9, linestyle="--")
    soon.axvline(never, color=style.REFERENCE, linewidth=0.6, linestyle=":")
    soon.set_xticks([0, 10, 20, 30, never], ["0", "10", "20", "30", "never"])
    for axis, title, label in (
        (times, "How long", "mean iteration ÷ ideal"),
        (soon, "How soon", "iterations until interleaved (median)"),
    ):
        axis.set(title=title, xlabel=label)
        axis.set_ylim(len(conditions) - 0.5, -0.5)
        axis.grid(visible=False, axis="y")
    times.set_yticks(range(len(conditions)), conditions)
    soon.set_yticks(range(len(conditions)), [""] * len(conditions))
    figure.legend(*soon.get_legend_handles_labels(), loc="outside upper center", ncols=2, fontsize=9)
    return figure


def _condition(base: str, nic: str) -> str:
    return f"{base}\n{'unshaped NICs' if nic == 'unlimited' else 'NICs at link rate'}"


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

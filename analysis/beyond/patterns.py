"""Iterations with more structure than one burst of one flow: channels, buckets, several peaks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.ticker import MaxNLocator

from testbed.core.runs.load import Experiment
from testbed.models.statistics import geometric_mean, log_interval
from testbed.report import drawing, redrawing, style
from testbed.report import observations as observed
from testbed.report.figures import Tables
from testbed.report.study import Study

ID = "patterns"
POSITION = 200
TITLE = "With several flows, buckets or peaks per iteration MLTCP gains in some patterns and nothing in others"
TEXT = (
    "A row for each mix of jobs, with what they need of the link together. Left: mean steady-state iteration relative to each job's ideal, under "
    "the base and MLTCP; right: speed-up, a dot a seed. Small bars: jobs in isolation. Traces are replayed as full-duplex rings, whose collectives cannot "
    "always reach the ideal."
)


def draw(study: Study, out: Path) -> list[Path]:
    """Write ``patterns.{png,pdf,csv}``, a row per run, and ``patterns-assumptions.csv``: what is assumed of the traces."""
    table, _ = _table(study)
    note = (
        f"{drawing.setting(study.runs[0])}; {drawing.count(table['seed'].nunique(), 'seed')} (dots), means, 95 % intervals (cut at the edge). "
        "Bytes are scaled with the link, times kept. Assumptions: patterns-assumptions.csv."
    )
    return redrawing.publish(plot, {ID: table, f"{ID}-assumptions": _assumptions(study)}, note, out)


def plot(tables: Tables) -> Any:
    """A row a pattern: iteration times, and the speed-up."""
    table = tables[ID]
    pair = observed.pair(observed.roles(table))
    assert pair is not None
    names = list(dict.fromkeys(table.sort_values("load")["pattern"]))
    figure, axes = style.new_figure(1, 2, figsize=(11, 1.4 + 0.62 * len(names)), sharey=True, width_ratios=[1.3, 1])
    left, right = axes[0]
    for y, name in enumerate(names):
        rows = table[table["pattern"] == name]
        for shift, cc in zip((-0.17, 0.17), pair, strict=True):
            _row(left, y + shift, list(rows[rows["cc"] == cc]["settled"]), drawing.colour(treatment=cc == pair[1]))
        alone = rows["alone"].mean()
        left.plot(
            [alone, alone],
            [y - 0.38, y + 0.38],
            color=style.REFERENCE,
            linewidth=1.6,
        )
        _row(right, y, observed.ratios(rows, *pair, "settled"), drawing.MLTCP)
    for name, colour in (
        *((cc, drawing.colour(treatment=cc == pair[1])) for cc in pair),
        ("in isolation", style.REFERENCE),
    ):
        left.plot([], [], color=colour, linewidth=2.4, label=name)
    # Of few seeds, intervals may be wider than this.
    left.set_xlim(0.97 * min(1.0, float(table["settled"].min())), 1.03 * float(table["settled"].max()))
    left.axvline(1, color=style.REFERENCE, linewidth=0.8, linestyle="--")
    right.axvline(1, color=style.REFERENCE, linewidth=0.8)
    loads = table.groupby("pattern")["load"].mean()
    left.set_yticks(range(len(names)), [f"{name}\n{loads[name]:.0%} of the link" for name in names], fontsize=9)
    left.invert_yaxis()
    left.grid(visible=False, axis="y")
    right.grid(visible=False, axis="y")
    left.set_xlabel("iteration time ÷ ideal, steady state")
    right.set_xlabel(f"{pair[0]} ÷ {pair[1]}")
    left.set_title("Iteration time")
    right.set_title("Speed-up")
    left.legend(fontsize=9, ncols=3, loc="lower left", bbox_to_anchor=(0.28, 1.0))
    low, high = right.get_xlim()
    right.set_xlim(min(low, 0.95), max(high, 1.05))
    right.xaxis.set_major_locator(MaxNLocator(6))
    return figure


def _table(study: Study) -> tuple[pd.DataFrame, tuple[str, str]]:
    table, pair = observed.compared(study)
    of = {experiment.path.name: _pattern(experiment) for experiment in study.experiments}
    alone = [
        np.mean([observed.relative_times(experiment, one).iloc[1:].mean().mean() for one in experiment.find_isolated_runs(run).values()] or [np.nan])
        for experiment in study.experiments
        for run in experiment.runs
    ]  # fmt: skip
    return table.assign(pattern=table["experiment"].map(of), alone=alone), pair


def _pattern(experiment: Experiment) -> str:
    """The jobs in words: ``2 × gpt2``, ``vgg16 + gpt2``, ``2 × synthetic, 4 flows each``."""
    jobs = experiment.runs[0].jobs
    kinds = dict.fromkeys((job.trace, job.channels) for job in jobs)
    texts = []
    for trace, channels in kinds:
        number = sum((job.trace, job.channels) == (trace, channels) for job in jobs)
        texts.append(
            (f"{number} × " if number > 1 else "")
            + trace
            + (f", {drawing.count(channels, 'flow')}" if channels > 1 else "")
        )
    return " + ".join(texts)


def _assumptions(study: Study) -> pd.DataFrame:
    """All that is assumed of the traces, once each, with the first pattern that takes it: ``pattern, assumption``."""
    found: dict[str, str] = {}
    for experiment in sorted(study.experiments, key=lambda one: len({job.trace for job in one.runs[0].jobs})):
        for text in experiment.runs[0].plan.assumptions:
            found.setdefault(text, _pattern(experiment))
    return pd.DataFrame([(pattern, text) for text, pattern in found.items()], columns=["pattern", "assumption"])


def _row(axis: Any, y: float, values: list[float], colour: str) -> None:
    """As `drawing.seeds`, lying down."""
    if not values:
        return
    spread = np.linspace(-0.1, 0.1, len(values)) if len(values) > 1 else np.zeros(1)
    axis.plot(values, y + spread, "o", markersize=3.5, markeredgewidth=0, color=colour, alpha=0.45, zorder=3)
    axis.vlines(geometric_mean(values), y - 0.14, y + 0.14, color=colour, linewidth=2.4, zorder=4)
    if found := log_interval(values):
        axis.hlines(y, *found, color=colour, linewidth=1.3, zorder=4)

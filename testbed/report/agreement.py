"""The same experiment on several backends, against the ideal: the figure `agreement`, and what
``mltcp compare A B`` adds for these.

For every congestion control: a job in isolation, and all jobs in steady state (the mean of each
job's last ten iterations), one dot a seed, against the computed ideal.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import isnan
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pandas as pd

from testbed.core.runs import measured, metrics
from testbed.core.runs.load import Experiment, LoadError, load_experiment
from testbed.models.statistics import interval as interval_of
from testbed.report import drawing, redrawing, style
from testbed.report.figures import Tables

STATES = {"alone": "one job in isolation", "steady": "all jobs, last ten iterations"}


def compare(folders: list[Path], out: Path) -> tuple[pd.DataFrame, list[Path]]:
    """Draw ``agreement.{png,pdf,csv}`` to ``out``; the `table` behind it. Raises `LoadError`."""
    return draw([load_experiment(folder) for folder in folders], out)


def draw(experiments: Sequence[Experiment], out: Path) -> tuple[pd.DataFrame, list[Path]]:
    """Draw the figure from experiments. Raises `LoadError` unless they are the same one on different backends."""
    found = table(experiments)
    plan = experiments[0].runs[0].plan
    note = (
        f"{drawing.count(len(plan.jobs), 'job')} ({plan.jobs[0].trace}), {plan.topology}, {drawing.rate(plan.link.rate_bps)}, "
        f"buffer {drawing.size(plan.link.buffer_bytes)}; dots: seeds, bars: mean, lines: 95 % intervals."
    )
    return found, redrawing.publish(plot, {"agreement": found}, note, out)


def table(experiments: Sequence[Experiment]) -> pd.DataFrame:
    """Return a row per backend, congestion control, state and seed: ``backend, cc, state, seed, ratio`` (÷ ideal)."""
    first, *others = experiments
    for other in others:
        if what := differences(first, other):
            raise LoadError(f"{first.path} and {other.path} are different experiments: {what[0]}")
    backends = [one.runs[0].manifest.backend for one in experiments]
    if len(set(backends)) < len(backends):
        raise LoadError(
            f"{' and '.join(str(one.path) for one in experiments)} ran on the same backend, {backends[0]}. Name results of "
            "different backends."
        )
    return pd.concat([_table(experiment) for experiment in experiments], ignore_index=True)


def means(found: pd.DataFrame) -> pd.DataFrame:
    """Return the mean over seeds, one column per backend, and the relative difference of the others from the first."""
    order = list(dict.fromkeys(found["backend"]))
    wide = found.pivot_table(index=["cc", "state"], columns="backend", values="ratio", sort=False)[order]
    for other in order[1:]:
        wide[f"{other} ÷ {order[0]} - 1"] = wide[other] / wide[order[0]] - 1
    return wide


def differences(before: Experiment, after: Experiment) -> list[str]:
    """Return the differences between the plans of two experiments; empty if they are equal.

    Runs of the same congestion control and seed are compared; without any, start times are ignored.
    """
    common = {(run.system, run.seed) for run in before.runs} & {(run.system, run.seed) for run in after.runs}
    runs = [
        next(run for run in each.runs if not common or (run.system, run.seed) == min(common))
        for each in (before, after)
    ]
    first, second = (run.plan for run in runs)
    found = [
        _values(name, getattr(first, name), getattr(second, name))
        for name in ("topology", "link", "rto_min_us", "wires", "bottlenecks", "sample_ns")
        # Bottlenecks are derived from the link: an equal link implies equal bottlenecks.
        if getattr(first, name) != getattr(second, name) and not (name == "bottlenecks" and first.link != second.link)
    ]
    own = ("operations", "ideal_s", "noise", "channels", "iterations", *(("offset_ns",) if common else ()))
    jobs = [[[getattr(job, name) for name in own] for job in plan.jobs] for plan in (first, second)]
    return found if jobs[0] == jobs[1] else [*found, "other jobs"]


def _values(name: str, before: Any, after: Any) -> str:
    """Two values of a plan; of those with parts every part that differs."""
    parts = [msgspec.to_builtins(each) for each in (before, after)]
    if all(isinstance(each, dict) for each in parts):
        differing = [part for part in {**parts[0], **parts[1]} if parts[0].get(part) != parts[1].get(part)]
        return "; ".join(_values(f"{name}.{part}", *(each.get(part) for each in parts)) for part in differing)
    return f"{name} is {before} and {after}"


def _table(experiment: Experiment) -> pd.DataFrame:
    rows = []
    seen: set[Path] = set()
    for run in experiment.runs:
        if isnan(ideal := measured.ideal_s(run)):  # of a real program
            continue
        common = {"backend": run.manifest.backend, "cc": run.system, "role": run.role, "seed": run.seed}
        together = metrics.steady(run.times)
        rows.append({**common, "state": "steady", "ratio": together / ideal})
        lone = list(experiment.find_isolated_runs(run).values())
        # Several seeds may share the isolated runs of a job: these are one measurement.
        if len(lone) == len(run.jobs) and not seen.issuperset(one.path for one in lone):
            seen.update(one.path for one in lone)
            by_itself = float(np.mean([metrics.alone(one.times) for one in lone]))
            rows.append({**common, "state": "alone", "ratio": by_itself / ideal})
    return pd.DataFrame(rows, columns=["backend", "cc", "role", "state", "seed", "ratio"])


def plot(tables: Tables) -> Any:
    """Iteration times in isolation and together, by backend."""
    found = tables["agreement"]
    ccs, backends = list(dict.fromkeys(found["cc"])), list(dict.fromkeys(found["backend"]))
    figure, axes = style.new_figure(1, len(STATES), figsize=(4.6 * len(STATES), 3.6), sharey=True)
    width = 0.7 / len(backends)
    for axis, (state, title) in zip(axes[0], STATES.items(), strict=True):
        for i, backend in enumerate(backends):
            colour = style.JOBS[i % len(style.JOBS)]
            for x, cc in enumerate(ccs):
                rows = found[(found["backend"] == backend) & (found["cc"] == cc) & (found["state"] == state)]
                values = rows["ratio"].to_numpy()
                if not len(values):
                    continue
                at = x + (i - (len(backends) - 1) / 2) * width
                spread = np.linspace(-0.25, 0.25, len(values)) * width if len(values) > 1 else np.zeros(len(values))
                axis.plot(at + spread, values, "o", markersize=4, color=colour, alpha=0.6)
                axis.hlines(values.mean(), at - 0.4 * width, at + 0.4 * width, color=colour, linewidth=2,
                            label=backend if x == 0 else None)  # fmt: skip
                if interval := interval_of(values):
                    axis.vlines(at, *interval, color=colour, linewidth=1)
        axis.axhline(1, color=style.REFERENCE, linewidth=0.8, linestyle="--")
        axis.set_xticks(range(len(ccs)), ccs)
        axis.set_title(title)
    axes[0, 0].set_ylabel("iteration time ÷ ideal")
    axes[0, 0].legend(loc="upper left")
    return figure

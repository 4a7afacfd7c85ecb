"""MLTCP competing with ordinary TCP: another training job, and a flow that always has data to send."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from testbed.core.runs.load import Experiment, LoadError, Run
from testbed.models.frames import payload_share
from testbed.report import drawing, redrawing, style
from testbed.report import observations as observed
from testbed.report.figures import Tables
from testbed.report.study import Study

ID = "fairness"
POSITION = 190
TITLE = "Next to MLTCP, jobs and long flows on ordinary TCP are not slower, but jobs on MLTCP are slowed by a long flow"
TEXT = (
    "Left: two training jobs of which none, one or both use MLTCP; the iteration time of each kind of job ÷ its ideal, steady state. "
    "Middle and right: training jobs next to one long-lived flow of the base: their iteration time, and its share of the link. One dot a seed."
)


def draw(study: Study, out: Path) -> list[Path]:
    """Write ``fairness.{png,pdf,csv}``; the data: a row per run and kind of job."""
    table = _table(study)
    note = (
        f"{drawing.setting(study.runs[0])}; training jobs with a duty of {observed.duty(study.runs[0], 0):.0%}; "
        f"{drawing.count(table['seed'].nunique(), 'seed')} (dots), means, 95 % intervals."
    )
    return redrawing.publish(plot, {ID: table}, note, out)


def plot(tables: Tables) -> Any:
    """Two training jobs with and without MLTCP; and training jobs next to a long-lived flow."""
    table = tables[ID]
    mixed, crowded = table[~table["background"]], table[table["background"]]
    figure, axes = style.new_figure(1, 3, figsize=(13, 4.2), width_ratios=[1.15, 1, 1])
    _mixes(axes[0, 0], mixed)
    _crowded(
        axes[0, 1], crowded, "time", "training jobs' iteration time ÷ ideal", "Jobs next to a long-lived ordinary flow"
    )
    _crowded(axes[0, 2], crowded, "background_share", "share of the link", "Share of the long-lived flow")
    return figure


def _table(study: Study) -> pd.DataFrame:
    rows = [row for experiment in study.experiments for run in experiment.runs for row in _rows(experiment, run)]
    if not rows:
        raise LoadError("fairness: there are no runs; run experiments/fairness.toml")
    return pd.DataFrame(rows)


def _rows(experiment: Experiment, run: Run) -> list[dict[str, Any]]:
    """One row per kind of training job: ``cc, job_cc, seed, training, background, time, background_share``."""
    long_lived = [job.job for job in run.jobs if job.iterations == 1]
    training = [job for job in run.jobs if job.job not in long_lived]
    times = observed.relative_times(experiment, run)
    share = _share(run, long_lived) if long_lived else np.nan
    late = observed.select_steady(times[[job.job for job in training]].dropna())
    return [
        {
            "experiment": experiment.path.name, "cc": run.system, "role": run.role, "job_cc": cc, "job_role": role, "seed": run.seed, "training": len(training),
            "background": bool(long_lived), "time": float(late[[job.job for job in training if job.cc.spec == cc]].mean().mean()),
            "background_share": share,
        }
        for cc, role in {job.cc.spec: job.cc.role for job in training}.items()
    ]  # fmt: skip


def _share(run: Run, long_lived: list[int]) -> float:
    """Goodput of the long-lived flows ÷ the link's, second half of the run."""
    flows = run.flows
    end = float(flows["t_s"].max())
    late = flows[flows["t_s"] > end / 2]
    by_flow = late[late["job"].isin(long_lived)].groupby(["job", "worker", "flow"])
    carried = float((by_flow["bytes_acked"].last() - by_flow["bytes_acked"].first()).sum())
    span = float(late["t_s"].max() - late["t_s"].min())
    return float(carried * 8 / span / (run.rate_bps * payload_share(run.plan.link.mtu)))


def _mixes(axis: Any, table: pd.DataFrame) -> None:
    ccs = list(dict.fromkeys(table["cc"]))
    roles = observed.roles(table)
    ccs.sort(key=lambda cc: (roles[cc] == "treatment", "+" not in cc))
    job_roles = dict(zip(table["job_cc"], table["job_role"], strict=True))
    seen: set[str] = set()
    for x, cc in enumerate(ccs):
        rows = table[table["cc"] == cc]
        kinds = list(dict.fromkeys(rows["job_cc"]))
        for i, kind in enumerate(kinds):
            at = x + (i - (len(kinds) - 1) / 2) * 0.4
            label = None if kind in seen else f"jobs on {kind}"
            drawing.seeds(
                axis,
                at,
                list(rows[rows["job_cc"] == kind]["time"]),
                drawing.colour(treatment=job_roles[kind] == "treatment"),
                width=0.32,
                label=label,
            )
            seen.add(kind)
    axis.axhline(1, color=style.REFERENCE, linewidth=0.8, linestyle="--")
    axis.set_xticks(range(len(ccs)), [cc.replace("+", "\n+ ") for cc in ccs], fontsize=9)
    axis.set_xlim(-0.6, len(ccs) - 0.4)
    axis.grid(visible=False, axis="x")
    axis.set_ylabel("iteration time ÷ ideal, steady state")
    axis.set_title("Two training jobs")
    if seen:
        axis.legend(fontsize=9)


def _crowded(axis: Any, table: pd.DataFrame, column: str, label: str, title: str) -> None:
    if table.empty:
        axis.set_visible(False)
        return
    numbers = sorted(table["training"].unique())
    roles = observed.roles(table)
    ccs = sorted(table["cc"].unique(), key=lambda cc: roles[cc] == "treatment")
    for x, number in enumerate(numbers):
        for i, cc in enumerate(ccs):
            values = list(table[(table["training"] == number) & (table["cc"] == cc)][column])
            at = x + (i - (len(ccs) - 1) / 2) * 0.36
            if values:
                drawing.seeds(
                    axis,
                    at,
                    values,
                    drawing.colour(treatment=roles[cc] == "treatment"),
                    width=0.3,
                    label=f"jobs on {cc}" if x == 0 else None,
                    ratios=column == "time",
                )
    axis.set_xticks(range(len(numbers)), [f"{number} job" + ("s" if number > 1 else "") for number in numbers])
    axis.set_xlim(-0.6, len(numbers) - 0.4)
    axis.grid(visible=False, axis="x")
    low, top = (1.0 if column == "time" else 0.0), float(table[column].max())
    axis.set_ylim(0.97 * low, top + 0.3 * (top - low))  # room for the legend
    axis.set_ylabel(label)
    axis.set_title(title)
    if numbers:
        axis.legend(fontsize=9, loc="upper left")

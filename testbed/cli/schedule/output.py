"""Schedules as they are printed: a table for people, a document for programs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from rich.console import Console

from testbed.cli.schedule.emulate import Emulated
from testbed.cli.table import metrics_tables
from testbed.core import terminal
from testbed.core.placing import Stint
from testbed.core.terminal import Column, Sheet
from testbed.core.text import count, decimal, plain
from testbed.models.cluster import Ran
from testbed.models.contention import Model
from testbed.planning.schedules import Carried
from testbed.traces.job_lists import JobList

CONSTANTS = ("rate_bps", "intra_bps", "reduce_bps", "alpha", "xi1", "xi2_s", "slot_s")


@dataclass(frozen=True)
class Result:
    """The result of one scheduler."""

    scheduler: str
    carried: Carried
    plan_s: float  # wall-clock time of planning and of the simulation
    emulated: tuple[Emulated, ...] = ()


def table(results: Sequence[Result], title: str) -> list[Sheet]:
    """Return tables of the metrics of each scheduler, with trials and planning time in seconds."""
    more = {
        "trials": [str(each.carried.trials) for each in results],
        "plan\n(s)": [f"{each.plan_s:.2f}" for each in results],
    }
    return metrics_tables({each.scheduler: each.carried.metrics for each in results}, title, more)


def beside(results: Sequence[Result]) -> Sheet:
    """A row for each schedule and system: the model's prediction, and the measurement."""
    headings = (
        "makespan\n(s)",
        "measured\n(s)",
        "error",
        "completion\nmean (s)",
        "measured\n(s)",
        "error",
        "error\nper job",
        "verdict",
    )
    rows = []
    for each in results:
        metrics = each.carried.metrics
        for came in each.emulated:
            rows.append([
                plain(each.scheduler), plain(came.system), decimal(metrics.makespan_s), decimal(came.makespan_s), f"{came.makespan_off:+.1%}",
                decimal(metrics.mean_completion_s), decimal(came.mean_completion_s), f"{came.completion_off:+.1%}", f"{came.job_off:.1%}", came.verdict,
            ])  # fmt: skip
    columns = [Column(), Column(), *(Column(heading, right=True) for heading in headings)]
    return Sheet(
        columns, rows, "Predicted, and measured with real traffic; error per job: mean over completions", names=2
    )


def document(sizes: Sequence[int], model: Model, results: Sequence[Result], jobs: JobList) -> dict[str, Any]:
    """Return the JSON document of ``--json``; infinite values become null."""
    values = {name: getattr(model, name) for name in CONSTANTS}
    return {
        "cluster": {"servers": list(sizes)},
        "model": {name: None if value == math.inf else value for name, value in values.items()},
        **origin(jobs),
        "results": [
            {
                "scheduler": each.scheduler,
                **asdict(each.carried.metrics),
                "trials": each.carried.trials,
                "plan_s": each.plan_s,
                "jobs": [_job(ran) for ran in each.carried.ran],
                **({"emulated": [asdict(one) for one in each.emulated]} if each.emulated else {}),
            }
            for each in results
        ],
    }


def origin(jobs: JobList) -> dict[str, Any]:
    """Return sampled and assumed values of a job list, and the omitted rows of a log, for JSON."""
    return {
        "synthetic": jobs.synthetic,
        "assumed": list(jobs.assumed),
        "left_out": [asdict(one) for one in jobs.omitted],
    }


def print_origin(console: Console, jobs: JobList) -> None:
    """Print sampled and assumed values of a job list, and omitted rows, as text."""
    if jobs.synthetic:
        terminal.say(console, f"Synthetic: {jobs.synthetic}.")
    for text in jobs.assumed:
        terminal.say(console, f"Assumed: {text}.")
    if jobs.omitted:
        left = count(sum(one.rows for one in jobs.omitted), "row")
        terminal.say(console, f"Left out: {left} of the list. Scheduled: {count(len(jobs.requests), 'job')}.")
        for one in jobs.omitted:
            terminal.say(console, f"  {one.rows}: {one.reason} (first: {one.first})", indent="    ")


def _job(ran: Ran) -> dict[str, Any]:
    found = {
        "job": ran.request.job,
        "start_s": ran.start_s,
        "end_s": ran.end_s,
        "mean_contention": ran.mean_contention,
        "gpus": _gpus(ran.held[-1]),
    }
    if ran.stints:  # it was stopped in between
        found["stints"] = [
            {"start_s": stint.start_s, "end_s": stint.end_s, "gpus": _gpus(stint)} for stint in ran.stints
        ]
    return found


def _gpus(stint: Stint) -> list[str]:
    return [f"{gpu.host}:{gpu.slot}" for gpu in stint.gpus]

"""``schedule --emulate``: the same schedules with real traffic under virtual time, predicted next to measured values."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from testbed import spec
from testbed.campaign.stored.folders import Again
from testbed.cli.schedule import run_missing
from testbed.core.errors import RequestError
from testbed.core.placing import Metrics, Request
from testbed.core.runs.load import LoadError, Run, load_run
from testbed.core.runs.verdict import Word
from testbed.core.units import Duration, Rate, Size
from testbed.models import run_schedule_metrics
from testbed.models.contention import Model
from testbed.planning import plan
from testbed.planning.plan import Planned
from testbed.planning.schedules import Carried

# Links as in `sjf-model`: large frames, a buffer of a millisecond, and a minimum RTO that does not dominate the cost of contention.
USUAL: dict[str, Any] = {"mtu": 9000, "buffer": "1ms", "rto_min": "5ms"}


@dataclass(frozen=True)
class Life:
    """The start, end, and outcome of an emulated job; times in seconds."""

    job: int
    start_s: float
    end_s: float
    outcome: str


@dataclass(frozen=True)
class Emulated:
    """The result of a schedule emulated on a network, with the relative errors of the model."""

    system: str
    makespan_s: float
    mean_completion_s: float
    makespan_off: float  # predicted ÷ measured − 1
    completion_off: float  # of the mean completions
    job_off: float  # absolute error of a job's completion, mean over jobs
    verdict: Word
    folder: str
    jobs: tuple[Life, ...]
    metrics: Metrics | None = None  # the usual numbers, as of the schedule that was computed


def fields(
    name: str, requests: Sequence[Request], sizes: Sequence[int], model: Model, schedulers: Sequence[str], systems: Sequence[str],
    seed: int,
) -> dict[str, Any]:  # fmt: skip
    """The experiment that carries these schedules out."""
    intra = {} if model.intra_bps == float("inf") else {"intra_server_rate": Rate(int(model.intra_bps)).exact}
    return {
        **USUAL, **intra, "name": name, "topo": ",".join(map(str, ("cluster", *sizes))), "rate": Rate(int(model.rate_bps)).exact,
        "scheduler": list(schedulers), "system": list(systems), "seed": seed, "on": run_missing.BACKEND,
        "job": [
            {
                "gpus": one.gpus, "iterations": one.iterations, "offset": Duration(round(one.arrival_s * 1e9)).exact,
                "compute": Duration(round(one.compute_s * 1e9)).exact, "bytes": Size(max(1, one.gradient_bytes)).exact,
            }
            for one in requests
        ],
    }  # fmt: skip


def planned(
    file: Path, requests: Sequence[Request], sizes: Sequence[int], model: Model, schedulers: Sequence[str],
    systems: Sequence[str], seed: int, changes: Sequence[str],
) -> Planned:  # fmt: skip
    """The runs that carry these schedules out; raises `RequestError` where a run cannot have them."""
    if model.slot_s:
        raise RequestError("--emulate: real traffic has no time slots. Leave out --slot.")
    name = "schedule-" + (re.sub(r"[^A-Za-z0-9._-]", "-", file.stem)[:100] or "jobs")
    asked = spec.make(
        fields(name, requests, sizes, model, schedulers, systems, seed), {"set": list(changes)}, "--emulate"
    )
    return plan.planned(asked, model)


def carry_out(
    runs: Planned, requests: Sequence[Request], predicted: dict[str, Carried], out: Path, parallel: int, again: Again = "never"
) -> dict[str, list[Emulated]]:  # fmt: skip
    """Each schedule under each system, by job scheduler; raises the error of the first run that fails."""
    found: dict[str, list[Emulated]] = {scheduler: [] for scheduler in predicted}
    for run in run_missing.carry_out([runs], out, parallel, again):
        scheduler = run.plan.scheduler or ""
        there = load_run(run.folder)
        found[scheduler].append(
            replace(compared(there, requests, predicted[scheduler]), metrics=run_schedule_metrics.metrics(there))
        )
    return found


def compared(run: Run, requests: Sequence[Request], predicted: Carried) -> Emulated:
    """A run next to the model's prediction; raises `LoadError` if its jobs hold no GPUs."""
    table = run.lives
    if table is None:
        raise LoadError(f"{run.path}: its jobs hold no GPUs")
    rows = table.set_index("job")
    ends, starts = (rows[name].to_numpy(dtype=float) for name in ("end_s", "start_s"))
    arrived = np.array([one.arrival_s for one in requests])
    predicted_ends_s = np.array([one.end_s for one in predicted.ran])
    took = ends - arrived
    return Emulated(
        run.system, float(ends.max()), float(took.mean()),
        float(predicted_ends_s.max() / ends.max() - 1), float((predicted_ends_s - arrived).mean() / took.mean() - 1),
        float(np.mean(np.abs((predicted_ends_s - arrived) / took - 1))), run.verdict.verdict, str(run.path),
        tuple(
            Life(one.job, start, end, str(outcome))
            for one, start, end, outcome in zip(requests, starts.tolist(), ends.tolist(), rows["outcome"], strict=True)
        ),
    )  # fmt: skip

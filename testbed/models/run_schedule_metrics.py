"""Compute scheduling metrics for an emulated run whose jobs request GPUs.

Uses `testbed.models.measures`, so emulated and simulated schedules report the same metrics.

Sources of each quantity:

- start and end times: measured (``jobs.csv``)
- contention: derived from the GPUs that each job held and the bottlenecks that its flows crossed
- isolated iteration time: the time measured in the job's isolated run if there is one, otherwise its
  ideal (`JobPlan.ideal_s`). On fewer servers than the job used, always the ideal (`JobPlan.fewest_s`).
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Any

import pandas as pd

from testbed.core.placing import Gpu, Metrics, Request, Stint
from testbed.core.runs.load import LoadError, Run
from testbed.core.runs.plan import JobPlan, Life
from testbed.models import contention
from testbed.models.cluster import Ran, Servers
from testbed.models.measures import measure


def metrics(run: Run, alone: pd.Series[float] | None = None) -> Metrics | None:
    """The usual numbers; ``alone``: each job's measured iteration alone, in seconds, where that is known of all.

    None: its jobs hold no GPUs, none of them came to its end, or an older testbed did not record which GPUs there were. Raises
    `LoadError` for tables that contradict the plan.
    """
    if not run.plan.servers or run.lives is None:
        return None
    found, jobs = ran(run), {job.job: job for job in run.jobs}
    if not any(job.done for job in found):
        return None

    def iteration_s(request: Request, servers: int) -> float:
        job = jobs[request.job]
        own = len({gpu.host for gpu in gpus(job)})
        known = job.fewest_s if servers < own else job.ideal_s
        if alone is not None and servers == own:
            known = float(alone[job.job])
        if known is None:
            raise LoadError(f"{run.path}: the isolated iteration time of job {job.job} is unknown; run it again")
        return known

    every = (Gpu(server, slot) for server, count in run.plan.servers.items() for slot in range(count))
    return measure(found, Servers(tuple(every)), iteration_s)


def ran(run: Run) -> tuple[Ran, ...]:
    """The outcome of each job, in the order of the plan; raises `LoadError` if they hold no GPUs.

    One that failed or left came on as in its iterations that ended, in the mean, to the last.
    """
    if run.lives is None:
        raise LoadError(f"{run.path}: its jobs hold no GPUs")
    rows = {int(row["job"]): row for row in run.lives.to_dict("records")}
    if rows.keys() != {job.job for job in run.jobs}:
        raise LoadError(f"{run.path}: jobs.csv has other jobs than its plan; run it again")
    lived = [(job, rows[job.job]) for job in run.jobs]
    held = [_held(run, job, row) for job, row in lived]
    met = contention.met(held, _crossed(run))
    return tuple(
        Ran(
            Request(job.job, len(gpus(job)), job.iterations, arrival_s=life(job).arrival_ns / 1e9),
            gpus(job), stints[0].start_s if stints else row["end_s"], row["end_s"], own.most, life(job).after, own.mean, stints,
            row["outcome"] == "done",
        )
        for (job, row), stints, own in zip(lived, held, met, strict=True)
    )  # fmt: skip


def _crossed(run: Run) -> list[set[str]]:
    """The directions of bottlenecks that each job's flows cross; where links fail, those at the start."""
    found = {job.job: set[str]() for job in run.jobs}
    for flow in run.manifest.crossings or ():
        found.get(flow.job, set()).update(flow.links)
    return list(found.values())


def _held(run: Run, job: JobPlan, row: Mapping[Hashable, Any]) -> tuple[Stint, ...]:
    """When it held its GPUs, by its row of ``jobs.csv``; empty if it never started."""
    start_s, end_s = row["start_s"], row["end_s"]
    if pd.isna(start_s):
        return ()
    iterations: float = job.iterations
    if row["outcome"] != "done":
        pace_s = run.times[job.job].mean() if job.job in run.times else job.ideal_s
        iterations = (end_s - start_s) / pace_s if pace_s else 0.0
    return (Stint(gpus(job), start_s, end_s, iterations),)


def life(job: JobPlan) -> Life:
    """Return the GPUs that a job may hold, and its times. Raises `LoadError` if it requests none."""
    if job.life is None:
        raise LoadError(f"job {job.job} holds no GPUs")
    return job.life


def gpus(job: JobPlan) -> tuple[Gpu, ...]:
    """The GPUs that it holds, by rank."""
    named = (text.rpartition(":") for text in life(job).gpus)
    return tuple(Gpu(host, int(slot)) for host, _, slot in named)

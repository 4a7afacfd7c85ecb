"""``--dry-run``: a plan in words; its folders, the number of runs and the expected time, also as JSON for programs."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

from testbed.backends import pace
from testbed.core import builtin_transport
from testbed.core.heartbeat import duration
from testbed.core.runs.plan import JobPlan, Plan
from testbed.core.text import count
from testbed.core.units import rate_text
from testbed.linux import setup_steps
from testbed.linux.features import Features
from testbed.planning import captures


def describe(plan: Plan, features: Features | None) -> Iterator[str]:
    """Yield the steps of the run, in order, for ``--dry-run``. Raises the run's error if the kernel lacks a feature.

    ``features``: of the kernel; None: the flow simulator computes the run.
    """
    steps = () if features is None else setup_steps.changes(plan, features)
    who = f"job {plan.alone} in isolation" if plan.alone is not None else count(len(plan.jobs), "job")
    yield f"run {plan.system.label}, seed {plan.seed}: {who} → {plan.folder}"
    yield f"  network {plan.topology}{plan.topology_args}, " + (
        "as flows" if features is None else "in a separate namespace"
    )
    for stage, lines in groupby(setup_steps.lines(steps), key=lambda line: line.stage):
        yield f"  {stage}, each setting read back:" if stage != "capacity" else f"  {stage}:"
        yield from (f"    {line.text}" for line in lines)
    if features is not None:
        yield "  measure the idle round trip"
    for job in plan.jobs:
        collectives = dict.fromkeys(op.algorithm or op.kind for op in job.collectives)
        yield (
            f"  job {job.job}: {job.trace} over {_carrier(job)} on {' '.join(dict.fromkeys(job.hosts))}, starts at {job.offset_ns / 1e6:.3f} ms, "
            + (
                f"ideal iteration {job.ideal_s:.4f} s"
                if job.ideal_s is not None
                else "runs " + shlex.join(job.program or ())
            )
            + (f", {'/'.join(collectives)}" if collectives else "")
            + (f", {count(job.channels, 'connection')} per flow" if job.channels > 1 else "")
            + (f", noise {job.noise}" if job.noise != "0%" else "")
            + (f", leaves at {job.leave_ns / 1e9:g} s" if job.leave_ns is not None else "")
            + (
                f", iterations begin every {job.grid.period_ns / 1e9:.4f} s from {job.grid.phase_ns / 1e6:.3f} ms"
                if job.grid
                else ""
            )
        )
    for event in plan.events:
        what = rate_text(event.rate_bps) if event.rate_bps is not None else "up" if event.up else "down"
        yield f"  at {event.at_ns / 1e9:g} s {event.link} becomes {what}"
    for key, value in (plan.schedule or {}).items():
        yield f"  {plan.system.name}: {key.replace('_', ' ')} {value}"
    for iterations in sorted({job.iterations for job in plan.jobs}):
        jobs = [str(job.job) for job in plan.jobs if job.iterations == iterations]
        yield f"  {count(iterations, 'iteration')} of job {', '.join(jobs)}"
    yield f"  sampled every {plan.sample_ns / 1e6:g} ms"
    if plan.capture is not None:
        yield f"  {captures.described(plan.capture, background=bool(plan.background))}"
    after = "" if features is None else "measure the idle round trip again, check that offloads are off, "
    yield f"  {after}judge, store as {plan.folder}"


def document(plans: Sequence[Plan], out: Path, backend: str) -> dict[str, Any]:
    """An experiment for programs: its results folder, its runs, and the wall time of each and of all."""
    record = pace.read()
    expected = [pace.expected_s(plan, backend, record) for plan in plans]
    return {
        "experiment": plans[0].experiment,
        "folder": str(out / plans[0].experiment),
        "on": backend,
        "runs": len(plans),
        "expected_s": round(pace.total_s(plans, backend), 1),
        "plans": [
            {
                "folder": str(out / plan.experiment / plan.folder), "system": plan.system.label, "seed": plan.seed, "isolated_job": plan.alone,
                "jobs": [{"job": job.job, "trace": job.trace, "ideal_s": job.ideal_s} for job in plan.jobs],
                "expected_s": round(seconds, 1),
            }
            for plan, seconds in zip(plans, expected, strict=True)
        ],
    }  # fmt: skip


def total(plans: Sequence[Plan], out: Path, backend: str) -> str:
    """Return the total of all runs as a line of text."""
    return f"Total: {count(len(plans), 'run')}, about {duration(pace.total_s(plans, backend))}. Results: {out / plans[0].experiment}"


def _carrier(job: JobPlan) -> str:
    """Return the congestion control of the job, or its transport with the congestion control of its TCP part."""
    if builtin_transport.plain(job.transport):
        return job.cc.spec
    return f"{job.transport} ({job.cc.spec} where it uses TCP)"

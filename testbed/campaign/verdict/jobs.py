"""What jobs tell of a run: when their phases began, what they sent, how long they take alone."""

from __future__ import annotations

import numpy as np

from core.runs.metrics import alone, iteration_times
from testbed.campaign.verdict.invariant import Case, Noted, Unjudged, not_applicable, not_evaluated, without
from testbed.campaign.verdict.links import shy


def lateness(case: Case) -> float | Noted | Unjudged:
    """I6: how late phases began, against the compute time of an iteration."""
    compute_s = {job.job: sum(op.get("duration_ns", 0) for op in job.operations) / 1e9 for job in case.plan.jobs}
    rows = case.iterations[case.iterations["job"].map(compute_s) > 0]
    if rows.empty:
        return not_evaluated("nothing is computed by sleeping")
    calm = case.calm.holds(rows["start_s"].to_numpy(), rows["end_s"].to_numpy())
    if not calm.any():
        return not_evaluated("something disturbed every iteration (I21)")
    late = (rows["late_s"] / rows["job"].map(compute_s))[calm]
    return without(float(np.percentile(late, 99)), ~calm)


def other_bytes(case: Case) -> float:
    """I9: every iteration carried exactly the bytes of the (scaled) trace."""
    wrong = 0
    for job in case.plan.jobs:
        for rank, expected in enumerate(job.bytes_per_worker):
            rows = case.iterations[(case.iterations["job"] == job.job) & (case.iterations["worker"] == rank)]
            short = job.leave_ns is None and len(rows) != job.iterations
            wrong += int((rows["bytes"] != expected).sum()) + short
    return wrong


def repeatability(_case: Case) -> Unjudged:
    """I10."""
    return not_applicable("belongs to the experiment")


def exact_alone(case: Case) -> Unjudged | None:
    plan = case.plan
    if plan.alone is None:
        return not_applicable("see the run of one job alone")
    job = plan.jobs[0]
    if job.ideal_s is None:
        return not_applicable("nobody can compute what a real program takes")
    if job.noise != "0%":
        return not_applicable("its computing varies")
    if job.trace != "synthetic":
        return not_applicable("a ring's ACKs queue behind its own reverse data")
    if plan.multipath and len({link.rate_bps for link in plan.bottlenecks.values()}) > 1:
        return not_applicable("a hash chooses its path, and not all are equally fast")
    if found := shy(plan):
        return not_applicable(f"{found[0]} itself leaves the link idle at times")
    if plan.wires:
        return not_applicable("with delay or loss TCP itself needs longer than the ideal")
    return None


def lone(case: Case) -> float:
    """I11: a synthetic job alone takes its computed ideal time."""
    ideal_s = case.plan.jobs[0].ideal_s
    assert ideal_s is not None  # `exact_alone`
    return alone(iteration_times(case.iterations)) / ideal_s

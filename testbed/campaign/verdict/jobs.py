"""Invariants of jobs: start of their phases, bytes sent, and isolated iteration time."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pandas as pd

from testbed import transports
from testbed.campaign.verdict.invariant import Case, Noted, Unjudged, not_applicable, not_evaluated, without
from testbed.campaign.verdict.links import may_leave_idle
from testbed.core import builtin_transport
from testbed.core.runs.disturbed import marked
from testbed.core.runs.metrics import alone, iteration_times
from testbed.core.runs.plan import JobPlan, Operation
from testbed.replay import flows

IN_A_RING = ("all_gather", "reduce_scatter")
STAGES: tuple[transports.Stage, ...] = ("gradient", "parameter")


def lateness(case: Case) -> float | Noted | Unjudged:
    """I6: how late phases began, against the compute time of an iteration."""
    compute_s = {job.job: job.compute_ns / 1e9 for job in case.plan.jobs}
    rows = case.iterations[case.iterations["job"].map(compute_s) > 0]
    if rows.empty:
        return not_evaluated("no job computes by sleeping")
    calm = case.calm.holds(rows["start_s"].to_numpy(), rows["end_s"].to_numpy())
    if not calm.any():
        return not_evaluated("every iteration was disturbed (I21)")
    late = (rows["max_start_delay_s"] / rows["job"].map(compute_s))[calm]
    return without(float(np.percentile(late, 99)), ~calm)


def other_bytes(case: Case) -> float:
    """I9: every iteration carried exactly the bytes of the (scaled) trace. The bytes of a real program are unknown.

    Where ranks differ, each flow is compared with its bytes. Where some may be lost, both ends must report the same count.
    Real programs of older runs have no such reports.
    """
    wrong = 0
    for job in case.plan.jobs:
        for rank, expected in enumerate(job.bytes_per_worker):
            rows = case.iterations[(case.iterations["job"] == job.job) & (case.iterations["worker"] == rank)]
            short = job.leave_ns is None and job.job not in case.failed and len(rows) != job.iterations
            wrong += int((rows["bytes"] != expected).sum()) + short
        if job.groups and job.job not in case.failed:
            plain = builtin_transport.plain(job.transport)
            wrong += _misdirected(job, case) if plain else _misaddressed(job, case.messages)
    return wrong + sum(
        _misreported(job, case.messages)
        for job in case.plan.jobs
        if not builtin_transport.plain(job.transport) and not (job.program and case.messages is None)
    )


def bytes_per_flow(job: JobPlan) -> dict[tuple[int, int], int]:
    """Payload from rank to rank in one iteration of a job with groups."""
    found: Counter[tuple[int, int]] = Counter()
    for operation in job.exchanges:
        found.update(flows.payload(operation, len(job.hosts), operation.bytes or 0, job.channels))
    return {flow: size for flow, size in found.items() if size}


def _misdirected(job: JobPlan, case: Case) -> int:
    """Return how many flows carried fewer bytes than the ended iterations, or more than the begun ones, at their last
    sample.

    The kernel counts acknowledged bytes, which lag behind sent bytes, so one iteration of difference is allowed.
    """
    flows = case.flows[case.flows["job"] == job.job]
    if flows.empty:
        return 0
    last = flows.sort_values("t_s").groupby(["worker", "flow"], as_index=False).last()
    last["pair"] = [tuple(map(int, flow.partition("#")[0].split("-"))) for flow in last["flow"]]
    acked = last.groupby("pair").agg(t_s=("t_s", "min"), bytes=("bytes_acked", "sum"), connections=("flow", "size"))
    expected = bytes_per_flow(job)
    iterations = case.iterations[case.iterations["job"] == job.job]
    wrong = len(expected.keys() ^ set(acked.index))
    for pair, t_s, carried, connections in acked.itertuples():
        own = iterations[iterations["worker"] == pair[0]]
        ended, begun = int((own["end_s"] <= t_s).sum()), int((own["start_s"] <= t_s).sum())
        size = expected.get(pair, 0)
        more = 0
        if ended == len(own):  # a worker continues until the slowest one of the run has its iterations
            more = 1 + int((t_s - own["end_s"].max()) / (own["end_s"] - own["start_s"]).min())
        wrong += not size * (ended - 1 - job.overlaps) <= carried <= size * (begun + more) + connections
    return wrong


def _misaddressed(job: JobPlan, messages: pd.DataFrame | None) -> int:
    """The same for other transports, which report the bytes of each message: flows and iterations that differ from the job's bytes."""
    if messages is None:
        return 0  # `_misreported` counts it
    received = messages[(messages["job"] == job.job) & (messages["side"] == "receive")]
    found = received.groupby(["peer", "worker", "iteration"])["bytes"].sum().unstack(fill_value=0)
    wanted = pd.Series(bytes_per_flow(job), dtype=float)
    either = found.index.union(wanted.index)
    return int(
        found.reindex(either, fill_value=0).ne(wanted.reindex(either, fill_value=0), axis="index").to_numpy().sum()
    )


def holds_gpus(case: Case) -> Unjudged | None:
    """I22 applies only to jobs that hold GPUs."""
    return None if case.plan.lives else not_applicable("jobs hold no GPUs, and fail together")


def failures(case: Case) -> float | Noted:
    """I22: jobs that failed; others got their GPUs."""
    reasons = ", ".join(f"job {job}: {why}" for job, why in case.failed.items())
    return Noted(len(case.failed), reasons) if reasons else 0


def _misreported(job: JobPlan, messages: pd.DataFrame | None) -> int:
    """I9 where bytes may be lost: rounds for which both ends disagree, or report less than the transport guarantees.

    A round closed by a deadline is no fault: it is counted in ``messages.csv``.
    """
    if messages is None:
        return 1
    keys = ["iteration", "source", "target", "stage", *({"operation", "message_index"} & set(messages.columns))]
    own = messages[messages["job"] == job.job]
    sent, received = own[own["side"] == "send"], own[own["side"] == "receive"]
    sent = sent.assign(source=sent["worker"], target=sent["peer"]).set_index(keys)
    received = received.assign(source=received["peer"], target=received["worker"]).set_index(keys)
    both = sent.add_suffix("_sent").join(received.add_suffix("_received"), how="outer")
    wrong = both["bytes_sent"] != both["bytes_received"]
    for end in ("sent", "received"):
        wrong |= both[f"delivered_{end}"] + both[f"missing_{end}"] != both[f"bytes_{end}"]
    wrong |= both["delivered_sent"] != both["delivered_received"]
    closes = {stage: transports.parse(job.transport).close(stage).over(_hops(job)) for stage in STAGES}
    named = zip(*map(both.index.get_level_values, ("stage", "iteration")), strict=True)
    least = np.array([_promised(closes[stage], int(number)) for stage, number in named])
    wrong |= (both["delivered_received"] < least * both["bytes_received"]) & (both["closed_deadline_received"] == 0)
    return int(wrong.sum())


def _hops(job: JobPlan) -> int:
    """Return the largest number of hops from rank to rank of a job's data; 1 if collectives of a single group differ."""

    def of(operation: Operation) -> int:
        ranks = len(job.hosts) if operation.members is None else len(operation.members)
        return ranks - 1 if operation.algorithm == "ring" or operation.kind in IN_A_RING else 1

    hops = set(map(of, job.exchanges))
    return max(hops, default=1) if job.groups or len(hops) == 1 else 1


def _promised(close: transports.Close, round: int) -> float:
    """The least share of every message that arrives, but for deadlines."""
    return min(close.fraction, 1 - close.tolerated(round))


def repeatability(_case: Case) -> Unjudged:
    """I10: variation of iteration times between seeds."""
    return not_applicable("judged for the experiment: see summary.json")


def exact_alone(case: Case) -> Unjudged | None:
    """The condition of invariants that compare a run of one job in isolation with its computed ideal time."""
    plan = case.plan
    if plan.alone is None:
        return not_applicable("judged in the isolated run")
    job = plan.jobs[0]
    if job.ideal_s is None:
        return not_applicable("the iteration time of a real program is unknown")
    if job.noise != "0%":
        return not_applicable("the compute time varies")
    if job.trace != "synthetic" or any(op.kind != "send_recv" for op in job.collectives):
        return not_applicable("a ring's ACKs queue behind its own reverse data")
    if plan.multipath and len({link.rate_bps for link in plan.bottlenecks.values()}) > 1:
        return not_applicable("a hash chooses the path, and the paths differ in rate")
    if found := may_leave_idle(plan):
        return not_applicable(f"{found[0]} itself leaves the link idle at times")
    if plan.transports:
        return not_applicable("the ideal assumes TCP's frames")
    if plan.traced:
        return not_applicable("the rate follows a trace, but the ideal assumes its highest rate")
    if plan.wires:
        return not_applicable("with delay or loss, TCP itself takes longer than the ideal")
    return None


def lone(case: Case) -> float | Noted | Unjudged:
    """I11: a synthetic job alone takes its computed ideal time."""
    ideal_s = case.plan.jobs[0].ideal_s
    assert ideal_s is not None  # `exact_alone`
    times = iteration_times(case.iterations)
    if case.disturbances is None:
        return alone(times) / ideal_s
    met = marked(case.iterations, case.disturbances).to_numpy()[:, 0]
    counted = met[1:] if len(met) > 1 else met  # by `alone`
    if counted.all():
        return not_evaluated("every iteration was disturbed (I21)")
    return without(alone(times[np.append([True], ~met[1:])]) / ideal_s, counted)

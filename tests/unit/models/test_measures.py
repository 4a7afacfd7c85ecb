"""Schedules in numbers, by hand."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from testbed.core.placing import Gpu, Metrics, Request, Stint
from testbed.models.cluster import Ran, Servers
from testbed.models.contention import Model
from testbed.models.measures import measure
from testbed.schedulers.job import Cluster
from tests.support.clusters import MODEL, asked, carried_out, cluster, instances


def told(name: str, jobs: list[Request], *sizes: int, model: Model = MODEL) -> Metrics:
    where = cluster(*sizes)
    ran = carried_out(asked(name, jobs, where, model), jobs, where, model)
    return measure(ran, Servers(tuple(where.gpus)), model.iteration_s)


def test_one_job_alone_is_as_fast_as_alone() -> None:
    found = told("fifo", [Request(0, 2, 10, 0, 1.0)], 4)
    assert (found.makespan_s, found.mean_slowdown, found.max_rho, found.jain) == (10, 1, 1, 1)
    assert found.utilisation == 0.5 and found.mean_queueing_s == found.p95_queueing_s == 0
    idle = found.idle_gpu_h
    assert idle.no_job == pytest.approx(20 / 3600) and idle.fragment == idle.waiting == idle.contention == 0


def test_waiting_slows_down() -> None:
    """Two jobs of 10 s on one GPU, one after the other: slowed down 1 and 2 times."""
    found = told("fifo", [Request(job, 1, 10, 0, 1.0) for job in range(2)], 1)
    assert (
        found.mean_completion_s == 15
        and found.mean_slowdown == 1.5
        and found.mean_queueing_s == 5
        and found.p95_queueing_s == pytest.approx(9.5)
    )
    assert found.jain == pytest.approx((1 + 0.5) ** 2 / (2 * (1 + 0.25)))
    # Two were there for 10 s, one for 10 s. Job 0 had an equal share of the GPU due, half of it: 20 s; it took 10. Job 1 met 1.5: 15 s.
    assert found.max_rho == pytest.approx(20 / 15)


def test_idle_by_cause() -> None:
    """4 GPUs: a job of 3 for 10 s; one of 2 waits, one GPU is a fragment; FIFO has a job of 1 wait behind it."""
    jobs = [Request(0, 3, 10, 0, 1.0), Request(1, 2, 10, 0, 1.0), Request(2, 1, 10, 0, 1.0, 4.0)]
    idle = told("fifo:backfill=no", jobs, 4).idle_gpu_h
    assert idle.fragment * 3600 == pytest.approx(4) and idle.waiting * 3600 == pytest.approx(6)
    assert idle.no_job * 3600 == pytest.approx(10) and idle.contention == 0
    assert told("fifo", jobs, 4).idle_gpu_h.waiting == 0, "it may pass"


def test_contention_is_lost_time() -> None:
    """Two jobs over the same two uplinks, α = 0: each iteration 20 ms instead of 10; 1 s of 2 s is lost, on 4 GPUs."""
    model = Model(1e9, alpha=0)
    jobs = [Request(job, 2, 100, 1_250_000) for job in range(2)]
    ran = [Ran(one, (Gpu("h1", one.job), Gpu("h2", one.job)), 0.0, 2.0, 2, (), 2.0) for one in jobs]
    servers = Servers(tuple(cluster(2, 2).gpus))
    found = measure(ran, servers, model.iteration_s)
    assert found.idle_gpu_h.contention * 3600 == pytest.approx(4) and found.max_contention == found.mean_contention == 2
    assert found.utilisation == 1


def test_mean_contention_is_over_time() -> None:
    """One is there for 1 s alone, then 2 s with the other."""
    model = Model(1e9, alpha=0)
    jobs = [Request(0, 4, 200, 625_000), Request(1, 4, 200, 625_000, 0.5)]
    where = cluster(2, 2, 2, 2)
    ran = carried_out(asked("random", jobs, where, model), jobs, where, model)
    for one in ran:
        assert 0 <= one.mean_contention <= one.contention


def test_a_job_that_takes_no_time_slows_nobody_down() -> None:
    found = told("fifo", [Request(0, 1, 0, 0, 0.0), Request(1, 1, 1, 0, 1.0)], 1)
    assert found.mean_slowdown == 1 and found.min_completion_s == 0 and found.max_completion_s == 1


def cut_off(ran: list[Ran], at_s: float) -> list[Ran]:
    """What there is to see of a schedule at ``at_s``, if jobs that are cut off come on evenly."""

    def seen(job: Ran) -> Ran:
        if job.end_s <= at_s:
            return job
        if job.start_s >= at_s:
            return replace(job, start_s=at_s, end_s=at_s, done=False)
        share = (at_s - job.start_s) / (job.end_s - job.start_s)
        stint = Stint(job.gpus, job.start_s, at_s, share * job.request.iterations)
        return replace(job, end_s=at_s, stints=(stint,), done=False)

    return [seen(job) for job in ran if job.request.arrival_s <= at_s]


def test_a_schedule_that_is_cut_off() -> None:
    """4 GPUs: a job of 3 for 10 s, cut off at 6; one of 1 for 2 s is done; one of 2 waits, with 1 and then no GPU free for it; one is yet to come."""
    jobs = [
        Request(0, 3, 10, 0, 1.0),
        Request(1, 1, 2, 0, 1.0),
        Request(2, 2, 10, 0, 1.0),
        Request(3, 1, 1, 0, 1.0, 7.0),
    ]
    where = cluster(4)
    ran = cut_off(carried_out(asked("fifo:backfill=no", jobs, where), jobs, where), 6.0)
    assert [job.request.job for job in ran] == [0, 1, 2]
    found = measure(ran, Servers(tuple(where.gpus)), MODEL.iteration_s, cut_s=6.0)
    assert math.isnan(found.makespan_s)
    assert (found.mean_completion_s, found.max_completion_s, found.mean_queueing_s) == (2, 2, 0), (
        "of the one that is done"
    )
    assert found.mean_slowdown == found.jain == 1
    assert found.utilisation == pytest.approx((3 * 6 + 2) / (4 * 6))
    idle = found.idle_gpu_h
    assert idle.fragment * 3600 == pytest.approx(4) and idle.waiting == idle.no_job == 0
    assert idle.contention == pytest.approx(0, abs=1e-12), "an iteration that has not ended is not lost"


def test_nothing_is_known_of_jobs_before_one_is_done() -> None:
    waits = Ran(Request(0, 2, 1, 0, 1.0), (), 3.0, 3.0, 0, (), done=False)
    found = measure([waits], Servers(tuple(cluster(1, 1).gpus)), MODEL.iteration_s, cut_s=3.0)
    of_jobs = [
        found.mean_completion_s,
        found.p95_completion_s,
        found.p95_queueing_s,
        found.mean_slowdown,
        found.max_rho,
        found.jain,
    ]
    assert all(map(math.isnan, of_jobs)) and found.utilisation == found.max_contention == 0
    assert found.idle_gpu_h.waiting * 3600 == pytest.approx(6)
    nobody = measure([], Servers(tuple(cluster(1, 1).gpus)), MODEL.iteration_s, cut_s=3.0)
    assert nobody.idle_gpu_h.no_job * 3600 == pytest.approx(6)


def test_a_job_that_failed_held_its_gpus() -> None:
    """One of 2 GPUs fails at 3 s; one of 1 GPU has waited for it, and is done 2 s later. One left before it got any."""
    servers = Servers(tuple(cluster(2).gpus))
    on = (Gpu("h1", 0), Gpu("h1", 1))
    failed = Ran(Request(0, 2, 10, 0, 1.0), on, 0.0, 3.0, 0, (), 0.0, (Stint(on, 0.0, 3.0, 3.0),), done=False)
    done = Ran(Request(1, 1, 2, 0, 1.0), on[:1], 3.0, 5.0, 0, ())
    left = Ran(Request(2, 2, 2, 0, 1.0), (), 4.0, 4.0, 0, (), done=False)
    found = measure([failed, done, left], servers, MODEL.iteration_s)
    assert (found.makespan_s, found.mean_completion_s, found.mean_queueing_s) == (5, 5, 3)
    assert found.utilisation == pytest.approx((6 + 2) / 10)
    idle = found.idle_gpu_h
    assert idle.fragment * 3600 == pytest.approx(1) and idle.no_job * 3600 == pytest.approx(1), (
        "until 4 s one waits for two"
    )


@given(instance=instances(), share=st.floats(0.05, 1.5))
def test_gpu_time_is_held_or_idle_however_a_schedule_is_cut_off(
    instance: tuple[list[Request], Cluster], share: float
) -> None:
    requests, where = instance
    ran = carried_out(asked("tightest_fit", requests, where), requests, where)
    at_s = share * max(job.end_s for job in ran)
    found = measure(cut_off(ran, at_s), Servers(tuple(where.gpus)), MODEL.iteration_s, cut_s=at_s)
    idle = found.idle_gpu_h
    free = (1 - found.utilisation) * len(where.gpus) * at_s / 3600
    assert idle.fragment + idle.waiting + idle.no_job == pytest.approx(free, abs=1e-9)

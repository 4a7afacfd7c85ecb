"""Schedules in numbers, by hand."""

from __future__ import annotations

import pytest

from core.placing import Gpu, Request
from tests.clusters import MODEL, asked, carried_out, cluster
from theory.cluster import Ran, Servers
from theory.contention import Model
from theory.measures import Metrics, measure


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
    assert found.mean_slowdown == 1 and found.least_completion_s == 0 and found.most_completion_s == 1

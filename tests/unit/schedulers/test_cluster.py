"""A cluster as events, and equation 8: by hand, by queueing theory, and by properties."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from testbed.core.errors import RequestError
from testbed.core.placing import After, Assignment, Assignments, At, Gpu, Request, Stint
from testbed.models.cluster import Servers, Start, State, Stop, Wake, simulate
from testbed.models.contention import Contended, Met, Model, met
from testbed.models.measures import measure
from testbed.schedulers import job as job_schedulers
from tests.support.clusters import EXHAUSTIVE, MODEL, PLACING, asked, carried_out, cluster, instances


def test_equation_8_by_hand() -> None:
    """4 GPUs over 2 servers, 1 MB: 2 · 8 Mbit · 3/4 at 1 Gbit/s is 12 ms, at C = 6 Gbit/s 1 ms, ξ2 = 2 ms, 10 ms computing."""
    job = Request(0, 4, 1, 1_000_000, 0.010)
    model = Model(rate_bps=1e9, intra_bps=24e9, reduce_bps=6e9, alpha=0.5, xi1=1, xi2_s=0.002)
    assert model.tau_s(job, 2, 1) == pytest.approx(0.012 + 0.001 + 0.004 + 0.010)
    assert model.tau_s(job, 2, 3) == pytest.approx(0.012 * (3 + 0.5 * 2) + 0.001 + 0.004 + 0.010)
    assert model.tau_s(job, 1, 0) == pytest.approx(0.0005 + 0.001 + 0.002 + 0.010)
    assert model.tau_s(Request(0, 1, 1, 10**6, 0.01), 1) == pytest.approx(0.012), "a single GPU has nothing to exchange"


def test_less_than_one_in_contention_is_none() -> None:
    job = Request(0, 2, 1, 10**6, 0.0)
    assert Model(1e9, xi1=0.5).tau_s(job, 2, 1) == Model(1e9).tau_s(job, 2, 1)
    assert Model(1e9, alpha=0, xi1=0.5).tau_s(job, 2, 4) == Model(1e9, alpha=0).tau_s(job, 2, 2)


def test_another_degradation() -> None:
    job = Request(0, 2, 1, 10**6, 0.0)
    squared = Model(1e9, degradation=lambda _alpha, k: k * k)
    assert squared.tau_s(job, 2, 3) == pytest.approx(9 * squared.tau_s(job, 2, 1))


def test_contention_counts_spanning_jobs_on_the_fullest_uplink() -> None:
    law = Contended(MODEL, 3)
    job = Request(0, 2, 1, 1, 0)
    law.starts(0, job, [0])
    assert law.contention(0) == 0, "inside a server"
    assert law.starts(1, job, [0, 1]) == [1] and law.contention(1) == 1, "alone on its uplinks; job 0 crosses none"
    assert law.starts(2, job, [1, 2]) == [1, 2] and law.contention(1) == 2
    law.starts(3, job, [0, 2])
    law.starts(4, job, [0, 1, 2])
    assert [law.contention(number) for number in range(5)] == [0, 3, 3, 3, 3]
    assert law.ends(4) == [1, 2, 3] and law.contention(1) == 2 and law.ends(0) == []


def test_contention_from_who_held_what() -> None:
    """Two over h1 from 1 s to 2 s, one inside h1; the next on h2 begins when the first ends; one was there for no time, one never."""
    held = [
        [Stint((Gpu("h1", 0), Gpu("h2", 0)), 0.0, 2.0, 1)],
        [Stint((Gpu("h1", 1), Gpu("h3", 0)), 1.0, 5.0, 1)],
        [Stint((Gpu("h1", 2), Gpu("h1", 3)), 0.0, 9.0, 1)],
        [Stint((Gpu("h2", 0), Gpu("h4", 0)), 2.0, 3.0, 1), Stint((Gpu("h3", 1), Gpu("h4", 0)), 4.0, 7.0, 1)],
        [Stint((Gpu("h1", 4), Gpu("h2", 4)), 1.5, 1.5, 1)],
        [],
    ]
    assert met(held) == [Met(2, 1.5), Met(2, 1.5), Met(0, 0.0), Met(2, 1.25), Met(0, 0.0), Met(0, 0.0)]


def test_contention_on_links_beyond_uplinks() -> None:
    """Two jobs on servers of their own, over one link between leaves; what is inside a server crosses nothing, whatever is said."""
    held = [[Stint((Gpu(f"h{job}"), Gpu(f"h{job + 3}")), 0.0, 1.0, 1)] for job in (1, 2)]
    held.append([Stint((Gpu("h1", 1),), 0.0, 1.0, 1)])
    assert met(held) == [Met(1, 1.0), Met(1, 1.0), Met(0, 0.0)]
    assert met(held, [["l1-s1", "s1-l2"], ["l1-s1"], ["l1-s1"]]) == [Met(2, 2.0), Met(2, 2.0), Met(0, 0.0)]


def test_two_jobs_on_one_uplink_to_the_microsecond() -> None:
    """Each 16 ms of bytes an iteration when alone and α = 0: 1 s of work each beside the other is 2 s; job 1 has twice as much."""
    model = Model(1e9, alpha=0)
    jobs = [Request(0, 2, 100, 1_250_000), Request(1, 2, 200, 1_250_000)]
    assert model.tau_s(jobs[0], 2) == pytest.approx(0.01)
    assigned = Assignments(tuple(Assignment(job, (Gpu("h1", job), Gpu("h2", job)), At(0), 0) for job in range(2)))
    ran = carried_out(assigned, jobs, cluster(2, 2), model)
    assert [one.end_s for one in ran] == pytest.approx([2.0, 3.0])
    assert [one.contention for one in ran] == [2, 2]


def test_slots_hold_whole_iterations() -> None:
    """τ = 0.3 slots: 3 iterations a slot, so 10 take 4 slots."""
    model = Model(slot_s=1.0)
    (ran,) = carried_out(asked("fifo", [Request(0, 1, 10, 0, 0.3)], cluster(1), model), [Request(0, 1, 10, 0, 0.3)], cluster(1), model)  # fmt: skip
    assert ran.end_s == 4.0
    with pytest.raises(RequestError, match="slot has only 1 s"):
        asked("fifo", [Request(0, 1, 1, 0, 1.5)], cluster(1), model)


def test_a_job_after_others() -> None:
    jobs = [Request(0, 1, 2, 0, 1.0), Request(1, 1, 3, 0, 1.0), Request(2, 1, 1, 0, 1.0), Request(3, 1, 1, 0, 1.0)]
    on = [Gpu("h1", 0), Gpu("h1", 1), Gpu("h1", 0), Gpu("h1", 1)]
    starts: list[At | After] = [At(0), At(0.5), After((0, 1)), At(9)]
    assigned = Assignments(tuple(Assignment(n, (on[n],), starts[n], 0) for n in range(4)))
    assert [(one.start_s, one.end_s) for one in carried_out(assigned, jobs, cluster(2))] == [
        (0, 2), (0.5, 3.5), (3.5, 4.5), (9, 10),
    ]  # fmt: skip


def test_a_policy_that_starts_nobody_comes_to_no_end() -> None:
    def nobody(_state: State) -> Iterator[Start]:
        return iter(())

    servers = Servers((Gpu("h1"),))
    assert simulate([Request(0, 1, 1, 0, 1)], servers, nobody, Contended(MODEL, 1)) is None


def test_no_gpu_can_be_given_twice() -> None:
    def twice(state: State) -> Iterator[Start]:
        for number in list(state.waiting):
            yield number, np.array([0])

    with pytest.raises(AssertionError, match="cannot have"):
        simulate([Request(0, 1, 1, 0, 1), Request(1, 1, 1, 0, 1)], Servers((Gpu("h1"),)), twice, Contended(MODEL, 1))


def erlang_c(servers: int, load: float) -> float:
    """Probability that who arrives at an M/M/c has to wait."""
    terms = [load**k / math.factorial(k) for k in range(servers)]
    last = load**servers / math.factorial(servers) * servers / (servers - load)
    return last / (sum(terms) + last)


def waited(gpus: int, load: float, seed: int) -> tuple[float, float]:
    """Of 1800 jobs after the first 200, which find the queue shorter than it will be: the share that waited, and how long in the mean."""
    draw, now, jobs = random.Random(seed), 0.0, []
    for job in range(2000):
        now += draw.expovariate(load * gpus)
        jobs.append(Request(job, 1, 1, 0, draw.expovariate(1.0), now))
    ran = carried_out(asked("fifo", jobs, cluster(gpus)), jobs, cluster(gpus))
    waits = np.array([one.start_s - one.request.arrival_s for one in ran[200:]])
    return float(np.mean(waits > 0)), float(np.mean(waits))


@pytest.mark.parametrize(("gpus", "load"), [(1, 0.5), (4, 0.7)])
def test_single_gpu_jobs_are_an_mmc_queue(gpus: int, load: float) -> None:
    """Who arrives waits with probability C(c, a), and C(c, a) / (c − a) mean services in the mean: in the 99 % intervals of 20 runs.

    These are independent, so that Student's t holds for their means. A queue with a tenth more to do is outside both.
    """

    def erlang(load: float) -> tuple[float, float]:
        waits = erlang_c(gpus, load * gpus)
        return waits, waits / (gpus - load * gpus)

    found = np.array([waited(gpus, load, seed) for seed in range(20)])
    low, high = stats.t.interval(0.99, len(found) - 1, found.mean(axis=0), stats.sem(found, axis=0))
    for number, (expected, other) in enumerate(zip(erlang(load), erlang(1.1 * load), strict=True)):
        assert low[number] <= expected <= high[number] < other


@pytest.mark.parametrize("name", [one for one in job_schedulers.names() if one not in (*PLACING, *EXHAUSTIVE)])
@given(instance=instances(), seed=st.integers(0, 5))
def test_every_schedule_is_sound(name: str, instance: tuple[list[Request], job_schedulers.Cluster], seed: int) -> None:
    """Everybody runs once with all GPUs, no GPU has two jobs at a time, nobody before its arrival; estimates come true."""
    requests, where = instance
    try:
        assigned = asked(name, requests, where, seed=seed)
    except RequestError as error:
        assert "schedules" in str(error)
        return
    ran = carried_out(assigned, requests, where)
    held: dict[Gpu, list[tuple[float, float]]] = {}
    for one, given_, request in zip(ran, assigned.jobs, requests, strict=True):
        assert given_.job == request.job and len(set(given_.gpus)) == request.gpus
        assert one.start_s >= request.arrival_s
        assert one.end_s - one.start_s == pytest.approx(given_.estimate_s)
        for stint in one.held:
            for gpu in stint.gpus:
                held.setdefault(gpu, []).append((stint.start_s, stint.end_s))
        assert sum(stint.iterations for stint in one.held) == pytest.approx(request.iterations)
    found = met([one.held for one in ran])
    assert [one.most for one in found] == [one.contention for one in ran], "it follows from who held which GPUs when"
    assert [one.mean for one in found] == pytest.approx([one.mean_contention for one in ran], abs=1e-9)
    for times in held.values():
        for (_, end), (start, _) in zip(sorted(times), sorted(times)[1:], strict=False):
            assert start >= end - 1e-9
    assert assigned.trials >= 1
    numbers = measure(ran, Servers(tuple(where.gpus)), MODEL.iteration_s)
    assert 0 < numbers.utilisation <= 1 + 1e-9 and numbers.makespan_s >= numbers.p95_completion_s - 1e-9
    assert numbers.mean_slowdown >= 1 - 1e-9 and numbers.max_rho > 0 and 0 < numbers.jain <= 1 + 1e-9
    idle = numbers.idle_gpu_h
    free = (1 - numbers.utilisation) * len(where.gpus) * numbers.makespan_s / 3600
    assert idle.fragment + idle.waiting + idle.no_job == pytest.approx(free, abs=1e-9)


def test_a_job_that_is_stopped_goes_on_from_where_it_was() -> None:
    """Two of 10 s on one GPU; the first is stopped at 4 s for the second, and takes 1 s to go on."""
    jobs = [Request(0, 1, 10, 0, 1.0), Request(1, 1, 10, 0, 1.0, 4.0)]

    def policy(state: State) -> Iterator[Start | Stop | Wake]:
        if state.arrived == [1]:
            yield Stop(0, 1.0)
            yield 1, np.array([0])
        elif state.waiting and state.free[0]:
            yield 0, np.array([0])

    ran = simulate(jobs, Servers((Gpu("h1"),)), policy, Contended(MODEL, 1))
    assert ran is not None
    first, second = ran
    assert [(stint.start_s, stint.end_s, stint.iterations) for stint in first.held] == [(0, 4, 4), (14, 21, 6)]
    assert (first.start_s, first.end_s, first.stints[1].restart_s) == (0, 21, 1)
    assert (second.start_s, second.end_s, second.stints) == (4, 14, ())


def test_a_policy_is_woken() -> None:
    asked_at = []

    def policy(state: State) -> Iterator[Start | Stop | Wake]:
        asked_at.append(state.now_s)
        if not asked_at[1:]:
            yield Wake(2.5)
            yield Wake(0.0)  # gone by
        elif state.waiting:
            yield 0, np.array([0])

    ran = simulate([Request(0, 1, 1, 0, 1.0)], Servers((Gpu("h1"),)), policy, Contended(MODEL, 1))
    assert ran is not None and (ran[0].start_s, ran[0].end_s) == (2.5, 3.5) and asked_at == [0.0, 2.5, 3.5]

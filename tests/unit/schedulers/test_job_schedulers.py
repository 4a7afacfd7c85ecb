"""Job schedulers against brute force, the integer program, the optimum, and what their report proves."""

from __future__ import annotations

import itertools
import math
import random
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import settings
from scipy.optimize import Bounds, LinearConstraint, milp

from testbed.core.errors import RequestError
from testbed.core.placing import After, At, Gpu, Request
from testbed.models.cluster import Servers, State, assignments
from testbed.models.contention import Contended, Model
from testbed.schedulers import job as job_schedulers
from testbed.schedulers import online, search
from testbed.schedulers.job import Cluster, place, sjf_bco
from testbed.schedulers.job import cassini as placing
from testbed.schedulers.job import random as shuffled
from tests.support.clusters import EXHAUSTIVE, MODEL, PLACING, PREEMPTING, asked, carried_out, cluster, drawn, makespan
from topologies.leafspine import LeafSpine

LONG = settings.get_current_profile_name() == "long"
INSTANCES = 220 if LONG else 12


def test_theorem_5_does_not_hold_as_stated() -> None:
    """Single-GPU jobs, so that n_g = φ = u/l = 1 and SJF-BCO were optimal; least-loaded-first is not."""
    jobs = [Request(job, 1, took, 0, 1.0) for job, took in enumerate((3, 3, 2, 2, 2))]
    for how in ("sjf_bco", "sjf_bco:faffp=leastload", "sjf_bco:theta=bisect", "list_scheduling"):
        assert makespan(how, jobs, cluster(2)) == 7
    assert makespan("optimum", jobs, cluster(2)) == 6


def test_a_partial_schedule_never_wins() -> None:
    """With θ below the second job nobody but the first runs, which is short; it must not count."""
    instance = search.Instance([Request(0, 1, 1, 0, 1.0), Request(1, 1, 1, 0, 5.0)], cluster(1), MODEL)
    best = search.Best(instance)
    best.attempt(search.Trial(instance, search.first_fit, [0, 1], 2.0))
    assert best.makespan_s == math.inf
    with pytest.raises(RequestError, match="none of 1 schedules"):
        best.assignments()
    best.attempt(search.Trial(instance, search.first_fit, [0, 1], 6.0))
    assert best.makespan_s == 6 and best.assignments().trials == 2


def test_the_makespan_is_that_of_the_model_and_not_of_the_estimates() -> None:
    """Two jobs of 2 over servers of 1: they contend, and take longer than each alone."""
    jobs = [Request(job, 2, 10, 1_250_000) for job in range(2)]
    assigned = asked("first_fit", jobs, cluster(1, 1, 1, 1), Model(1e9, alpha=0))
    assert [one.estimate_s for one in assigned.jobs] == pytest.approx([0.1, 0.1]), "side by side: four servers"
    crossed = search.Instance(jobs, cluster(2, 2), Model(1e9, alpha=0))

    def apart(offer: search.Offer) -> np.ndarray | None:
        return np.array([offer.number, 2 + offer.number])

    ran = crossed.run(search.Trial(crossed, apart, [0, 1]))
    assert ran is not None and [one.end_s for one in ran] == pytest.approx([0.2, 0.2])
    assert list(crossed.estimates_s) == [0, 0], "inside one server they exchange for nothing"


def test_kappa_at_the_sizes_of_jobs_is_all_there_is() -> None:
    jobs, where = drawn(3, 9, 5), cluster(4, 4, 2)
    sizes = sorted({one.gpus for one in jobs})
    by_kappa = {kappa: asked(f"sjf_bco:kappa={kappa}", jobs, where).jobs for kappa in range(1, 7)}
    for kappa in range(sizes[0], 7):
        assert by_kappa[kappa] == by_kappa[max(size for size in sizes if size <= kappa)]
    ends = {kappa: makespan(f"sjf_bco:kappa={kappa}", jobs, where) for kappa in by_kappa}
    assert makespan("sjf_bco", jobs, where) == min(ends.values())


def test_kappa_of_the_largest_job_uses_fa_ffp_only(monkeypatch: pytest.MonkeyPatch) -> None:
    jobs, where, used = drawn(4, 8, 5), cluster(4, 4), Counter[str]()
    for name in ("faffp_pack", "lbsgf"):
        own = getattr(sjf_bco, name)
        monkeypatch.setattr(sjf_bco, name, lambda *given, own=own, name=name: (used.update([name]), own(*given))[1])
    asked(f"sjf_bco:kappa={max(one.gpus for one in jobs)}", jobs, where)
    assert used["lbsgf"] == 0 and used["faffp_pack"] > 0
    asked("sjf_bco:kappa=1", [one for one in jobs if one.gpus > 1], where)
    assert used["lbsgf"] > 0


def offers(count: int) -> Iterator[search.Offer]:
    """Moments of small clusters: some GPUs free, work on all, a job."""
    for seed in range(count):
        draw = random.Random(seed)
        where = cluster(*(draw.randint(1, 4) for _ in range(draw.randint(1, 4))))
        requests = [Request(0, draw.randint(1, 5), 1, 0, 1.0)]
        if requests[0].gpus > len(where.gpus):
            continue
        instance = search.Instance(requests, where, MODEL)
        servers, count_ = instance.servers, len(where.gpus)
        free = np.array([draw.random() < 0.7 for _ in range(count_)])
        load = np.array([float(draw.randint(0, 3)) for _ in range(count_)])
        idle = np.bincount(servers.of[free], minlength=len(servers.sizes))
        state = State(servers, requests, 0.0, [0], {0: None}, free, idle, {}, {})
        yield search.Offer(0, requests[0], state, load, free & (load <= draw.randint(0, 3)), instance.law())


@pytest.mark.parametrize("lam", [1, 2, 4])
def test_lbsgf_by_brute_force(lam: int) -> None:
    """Of all choices on the first servers by work that have λ G GPUs: the least work, ties in the servers' order."""
    decided = Counter[bool]()
    for offer in offers(300):
        of, wanted = offer.state.servers.of.tolist(), offer.request.gpus
        sizes = Counter(of)
        order = sorted(
            sizes, key=lambda s: (sum(w for w, o in zip(offer.load_s, of, strict=True) if o == s) / sizes[s], s)
        )
        opened: list[int] = []
        while order and sum(sizes[server] for server in opened) < lam * wanted:
            opened.append(order.pop(0))
        allowed = [gpu for gpu in range(len(of)) if offer.candidates[gpu] and of[gpu] in opened]
        found = sjf_bco.lbsgf(offer, lam)
        decided[found is None] += 1
        if len(allowed) < wanted:
            assert found is None
            continue
        best = min(
            itertools.combinations(allowed, wanted),
            key=lambda gpus: (
                sum(offer.load_s[list(gpus)]),
                sorted((offer.load_s[gpu], opened.index(of[gpu]), gpu) for gpu in gpus),
            ),
        )
        assert found is not None and sorted(found.tolist()) == sorted(best)
    assert min(decided.values()) > 20


def opened(offer: search.Offer, gpus: Sequence[int]) -> tuple[int, list[int]]:
    """How many of the GPUs are in servers that nobody uses, and how many are free in each one's server."""
    servers, idle = offer.state.servers, offer.state.idle
    fresh = [int(idle[servers.of[gpu]] == servers.sizes[servers.of[gpu]]) for gpu in gpus]
    return sum(fresh), sorted(int(idle[servers.of[gpu]]) + 100 * new for gpu, new in zip(gpus, fresh, strict=True))


def test_fa_ffp_by_brute_force() -> None:
    """Packed: as few GPUs of idle servers as possible, then the fullest servers first. By load: the least of it."""
    for offer in offers(300):
        allowed = np.flatnonzero(offer.candidates).tolist()
        packed, least = sjf_bco.faffp_pack(offer), search.least_loaded(offer)
        if len(allowed) < offer.request.gpus:
            assert packed is None and least is None
            continue
        choices = list(itertools.combinations(allowed, offer.request.gpus))

        assert packed is not None and least is not None
        assert opened(offer, packed.tolist()) == min(opened(offer, gpus) for gpus in choices)
        assert sum(offer.load_s[least]) == min(sum(offer.load_s[list(gpus)]) for gpus in choices)


@pytest.mark.parametrize("seed", range(20))
def test_the_optimum_of_single_gpu_jobs_by_brute_force(seed: int) -> None:
    """Every job on every GPU: in which order a GPU takes its own does not matter."""
    draw = random.Random(seed)
    jobs, gpus = [Request(job, 1, draw.randint(1, 9), 0, 1.0) for job in range(6)], draw.randint(1, 3)
    busy = [
        [sum(one.iterations for one, on in zip(jobs, where, strict=True) if on == gpu) for gpu in range(gpus)]
        for where in itertools.product(range(gpus), repeat=len(jobs))
    ]
    assert makespan("optimum", jobs, cluster(gpus)) == min(map(max, busy))


def test_the_optimum_waits_where_contention_costs_more() -> None:
    """Two rings over three servers, of which the middle one is shared: one after the other takes less, if f is steep enough."""
    jobs, where = [Request(job, 4, 10, 10**7, 0.05) for job in range(2)], cluster(3, 2, 3)
    for alpha, contention in ((0.0, 2), (5.0, 1)):
        model = Model(1e9, alpha=alpha)
        isolated_s = 10 * model.tau_s(jobs[0], 2, 1)
        ran = carried_out(asked("optimum", jobs, where, model), jobs, where, model)
        assert max(one.contention for one in ran) == contention
        assert max(one.end_s for one in ran) <= 2 * isolated_s + 1e-9


@pytest.mark.parametrize(
    ("jobs", "model"),
    [
        ([Request(job, 1, 1, 0, 1.0) for job in range(9)], MODEL),
        ([Request(0, 1, 1, 0, 1.0, 2.0)], MODEL),
        ([Request(0, 1, 1, 0, 1.0)], replace(MODEL, slot_s=5.0)),
    ],
)
def test_the_optimum_is_for_a_few_jobs(jobs: list[Request], model: Model) -> None:
    with pytest.raises(RequestError, match="8 jobs"):
        asked("optimum", jobs, cluster(2), model)


def test_estimates_are_the_least_and_the_most_that_equation_8_knows() -> None:
    """A job of 4 GPUs over servers of 3, 2 and 1: on two of them alone; on three alone; there beside two others."""
    servers, model = Servers(tuple(cluster(3, 2, 1).gpus)), Model(1e9, alpha=0.3, xi2_s=0.1)
    job = Request(0, 4, 10, 10**7, 0.05)
    exchange_s = 2 * 8e7 * 3 / 4 / 1e9
    expected = [0.05 + 0.2 + exchange_s, 0.05 + 0.3 + exchange_s, 0.05 + 0.3 + exchange_s * (3 + 0.3 * 2)]
    found = [search.estimate_s(job, servers, model, rho) for rho in search.RHOS]
    assert found == pytest.approx([10 * tau for tau in expected])
    single = Request(0, 1, 10, 10**7, 0.05)
    assert [search.estimate_s(single, servers, model, rho) for rho in search.RHOS] == pytest.approx([1.5] * 3)


@pytest.mark.parametrize("name", ["sjf_bco", "sjf_bco:theta=bisect", "list_scheduling", "first_fit"])
def test_a_bound_on_estimates_stretches_the_horizon(name: str) -> None:
    """u is one number for all jobs: dividing estimates by it is the same as letting θ grow to u T."""
    jobs, where = drawn(3, 9, 5), cluster(4, 4, 2)
    instance = search.Instance(jobs, where, MODEL)
    u = max(
        search.estimate_s(one, instance.servers, MODEL, "worst")
        / search.estimate_s(one, instance.servers, MODEL, "fewest")
        for one in jobs
    )
    end = "," if ":" in name else ":"
    assert u > 2
    assert asked(f"{name}{end}u=bounds", jobs, where) == asked(f"{name}{end}horizon={2 * u!r}", jobs, where)
    assert instance.horizon_s(search.Limits(u="bounds")) == pytest.approx(u * instance.horizon_s(search.Limits()))
    assert instance.horizon_s(search.Limits(horizon=6)) == pytest.approx(3 * instance.horizon_s(search.Limits()))


def test_estimates_decide_what_theta_lets_in() -> None:
    """By its worst estimate a job that spans servers is longer than θ by others' leaves room for; u makes up for it."""
    jobs, where = drawn(3, 9, 5), cluster(4, 4, 2)
    worst, best = (search.Instance(jobs, where, MODEL, rho) for rho in ("worst", "fewest"))
    assert worst.lowest_s() > 2 * best.lowest_s()
    assert all(one >= other for one, other in zip(worst.estimates_s, best.estimates_s, strict=True))


def least_theta(requests: Sequence[Request], where: Cluster) -> float:
    """θ* of equations 11–16: the least largest sum of estimates on a GPU, over all placements, as an integer program."""
    instance = search.Instance(requests, where, MODEL)
    gpus, jobs = len(where.gpus), len(requests)
    one = jobs * gpus + 1
    rows: list[np.ndarray] = []
    low: list[float] = []
    high: list[float] = []
    for job, request in enumerate(requests):  # its GPUs
        row = np.zeros(one)
        row[job * gpus : (job + 1) * gpus] = 1
        rows.append(row)
        low.append(request.gpus)
        high.append(request.gpus)
    for gpu in range(gpus):  # its work, θ at the most
        row = np.zeros(one)
        row[gpu : jobs * gpus : gpus] = instance.estimates_s
        row[-1] = -1
        rows.append(row)
        low.append(-np.inf)
        high.append(0)
    goal = np.zeros(one)
    goal[-1] = 1
    found = milp(
        goal, constraints=LinearConstraint(np.array(rows), low, high), integrality=np.append(np.ones(one - 1), 0),
        bounds=Bounds(0, np.append(np.ones(one - 1), np.inf)),
    )  # fmt: skip
    assert found.success
    return float(found.fun)


def work(how: str, requests: Sequence[Request], where: Cluster) -> float:
    """θ̃: the largest sum of estimates on a GPU in the schedule that was found."""
    instance, on = search.Instance(requests, where, MODEL), dict.fromkeys(where.gpus, 0.0)
    for one, took in zip(asked(how, requests, where).jobs, instance.estimates_s, strict=True):
        on.update({gpu: on[gpu] + float(took) for gpu in one.gpus})
    return max(on.values())


@pytest.mark.parametrize("seed", range(3 if not LONG else 40))
def test_no_schedule_beats_the_integer_programs_theta(seed: int) -> None:
    requests, where = drawn(seed, 6, 5), cluster(3, 2, 2)
    least = least_theta(requests, where)
    for how in ("sjf_bco", "list_scheduling", "first_fit"):
        assert work(how, requests, where) >= least - 1e-6
    assert least >= search.Instance(requests, where, MODEL).lowest_s() - 1e-6


def small(seed: int) -> tuple[list[Request], Cluster]:
    """Three servers and eight GPUs at the most, five jobs (in the short form four)."""
    draw = random.Random(seed)
    sizes = [draw.randint(1, 4) for _ in range(draw.randint(1, 3))]
    while sum(sizes) > 8:
        sizes[sizes.index(max(sizes))] -= 1
    return drawn(seed, draw.randint(2, 5 if LONG else 4), min(4, sum(sizes))), cluster(*sizes)


def test_no_schedule_beats_the_optimum(record_property: Callable[[str, object], None]) -> None:
    """Every scheduler's makespan ÷ the optimum on drawn instances: never below 1; SJF-BCO's is 1 in most."""
    ratios: dict[str, list[float]] = {
        name: [] for name in job_schedulers.names() if name not in (*PLACING, *PREEMPTING, *EXHAUSTIVE)
    }
    budget, thetas = list[float](), []
    for seed in range(INSTANCES):
        requests, where = small(seed)
        best = makespan("optimum", requests, where)
        for name, found in ratios.items():
            found.append(makespan(name, requests, where) / best)
        budget.append(makespan(f"best_of:n={asked('sjf_bco', requests, where).trials}", requests, where) / best)
        thetas.append(work("sjf_bco", requests, where) / least_theta(requests, where))
    for name, found in {**ratios, "best_of, SJF-BCO's budget": budget, "theta": thetas}.items():
        assert min(found) >= 1 - 1e-9, name
        optimal = np.mean(np.array(found) <= 1 + 1e-9)
        record_property(
            name,
            f"mean {np.mean(found):.3f}, median {np.median(found):.3f}, p95 {np.percentile(found, 95):.3f}, worst {max(found):.3f}, optimal {optimal:.0%}",
        )
    assert np.median(ratios["sjf_bco"]) < 1.2 and np.median(thetas) < 1.5


@pytest.mark.parametrize("seed", range(5 if not LONG else 200))
def test_lemma_3(seed: int) -> None:
    """κ = n_g and FA-FFP: makespan ≤ n_g · W_max, where no GPU's jobs wait for others' (single server, so no contention)."""
    requests, where = drawn(seed, 8, 4), cluster(6)
    largest = max(one.gpus for one in requests)
    for reading in ("pack", "leastload"):
        how = f"sjf_bco:kappa={largest},faffp={reading}"
        assert makespan(how, requests, where) <= largest * work(how, requests, where) + 1e-9


def test_sjf_bco_starts_the_smallest_job_first() -> None:
    """One server: no two of these fit at once; of equal ones the first in the list is first."""
    jobs = [Request(number, gpus, 1, compute_s=1.0) for number, gpus in enumerate((4, 3, 2, 3))]
    starts = {one.job: one.start for one in asked("sjf_bco", jobs, cluster(4)).jobs}
    assert [job for job, start in starts.items() if start == At(0)] == [2]
    assert search.Instance(jobs, cluster(4), MODEL).smallest_first() == [2, 1, 3, 0]


def test_trials_stop_where_theta_keeps_nothing() -> None:
    """One job on an empty cluster: one θ is as good as any."""
    assert asked("first_fit", [Request(0, 1, 1, 0, 1.0)], cluster(2)).trials == 2, "the horizon's and one more"
    assert asked("best_of:n=7", drawn(1, 5, 3), cluster(3, 2)).trials == 7


def test_best_of_is_no_worse_than_its_first_order() -> None:
    jobs, where = drawn(5, 10, 4), cluster(4, 2, 2)
    assert makespan("best_of:n=10", jobs, where) <= makespan("tightest_fit", jobs, where)
    assert makespan("random:orders=5", jobs, where) <= makespan("random", jobs, where)


def test_random_placement_is_as_it_was() -> None:
    """Hosts of runs are drawn as ever: one shuffle by the run's seed, job by job."""
    topo = LeafSpine(2, 2, 4)
    hosts = [gpu.host for gpu in job_schedulers.make_cluster(topo).gpus]
    random.Random("place 7").shuffle(hosts)
    assert place(topo, [3, 2], "random", 7) == [tuple(hosts[:3]), tuple(hosts[3:5])]
    assert shuffled.Options() == shuffled.Options(orders=1, backfill=False)


def test_a_scheduler_with_waits_is_refused_in_a_run() -> None:
    """LBSGF lets the second job wait for the least busy server although others are free."""
    assert place(LeafSpine(2, 2, 4), [2, 2], "first_fit", 1) == [("h1", "h2"), ("h3", "h4")]


def test_easy_backfill_delays_nobody_in_front() -> None:
    """4 GPUs: 3 for 10 s; then a job of 4 has to wait; of the short and the long one behind it only the short one passes."""
    jobs = [Request(0, 3, 10, 0, 1.0), Request(1, 4, 5, 0, 1.0), Request(2, 1, 20, 0, 1.0), Request(3, 1, 8, 0, 1.0)]
    starts = [one.start_s for one in carried_out(asked("fifo", jobs, cluster(4)), jobs, cluster(4))]
    assert starts == [0, 10, 15, 0]
    starts = [one.start_s for one in carried_out(asked("fifo:backfill=no", jobs, cluster(4)), jobs, cluster(4))]
    assert starts == [0, 10, 15, 15]


def test_srsf_admits_as_many_as_it_says() -> None:
    """Four jobs that must span servers of 3, each of 4 GPUs."""
    jobs, where = [Request(job, 4, 10, 10**7, 0.01) for job in range(4)], cluster(3, 3, 3, 3, 3)
    for share, most in (("1", 1), ("2", 2)):
        ran = carried_out(asked(f"srsf:share={share}", jobs, where), jobs, where)
        assert max(one.contention for one in ran) == most
    assert max(one.contention for one in carried_out(asked("reservation", jobs, where), jobs, where)) == 1


def test_lwf_treats_large_jobs_by_server() -> None:
    """After a job on h1 has gone, both GPUs of the unused h2 are taken, not one of each."""
    jobs = [Request(0, 1, 1, 0, 1.0), Request(1, 2, 1, 0, 1.0, 2.0)]
    assert [gpu.host for gpu in asked("lwf", jobs, cluster(2, 2)).jobs[1].gpus] == ["h2", "h2"]
    assert [gpu.host for gpu in asked("lwf:kappa=2", jobs, cluster(2, 1)).jobs[1].gpus] == ["h1", "h2"]


def test_a_job_waits_for_whom_it_waited_for() -> None:
    """A start after others is said as such, so that it holds if they take longer."""
    jobs = [Request(0, 2, 5, 0, 1.0), Request(1, 2, 5, 0, 1.0, 1.0)]
    first, second = asked("tightest_fit", jobs, cluster(2)).jobs
    assert first.start == At(0) and second.start == After((0,))
    ran = carried_out(asked("tightest_fit", jobs, cluster(2)), jobs, cluster(2))
    assert assignments(ran).jobs == (first, second)
    assert Contended(MODEL, 1).crowd([0]) == 1


def online_jobs(seed: int, jobs: int = 12) -> list[Request]:
    """As `drawn`, arriving one after the other."""
    return [replace(one, arrival_s=0.05 * number) for number, one in enumerate(drawn(seed, jobs, 4))]


def test_a_search_knows_of_those_alone_that_have_arrived() -> None:
    """What has started before a job arrives is the same whatever that job is."""
    where, options_ = cluster(3, 2, 2), sjf_bco.Options(thetas=4)
    for seed in range(4):
        few = online_jobs(seed)
        other = [*few[:8], *(replace(one, gpus=7, iterations=999) for one in few[8:])]
        starts = []
        for jobs in (few, other):
            assigned = online.schedule(job_schedulers.find("sjf_bco"), jobs, where, MODEL, options_, seed=1)
            ran = carried_out(assigned, jobs, where)
            starts.append([(one.request.job, one.gpus, one.start_s) for one in ran if one.start_s < few[8].arrival_s])
        assert starts[0] == starts[1] and starts[0]


def test_those_that_run_stay_where_they_are() -> None:
    """Asked again in between, a job holds its GPUs; estimates come true."""
    where = cluster(3, 2, 2)
    for name in ("sjf_bco", "first_fit", "list_scheduling", "best_of"):
        module, jobs = job_schedulers.find(name), online_jobs(7)
        assigned = online.schedule(module, jobs, where, MODEL, module.Options(), seed=1)
        ran = carried_out(assigned, jobs, where)
        assert [one.gpus for one in ran] == [one.gpus for one in assigned.jobs]
        assert [one.end_s - one.start_s for one in ran] == pytest.approx([one.estimate_s for one in assigned.jobs])
        assert all(one.start_s >= one.request.arrival_s for one in ran)
        assert assigned.trials > len(jobs), "at every arrival anew"


def test_what_gpus_did_before_is_not_forgotten() -> None:
    """One job after the other on two GPUs: list scheduling takes the one that has done less, first fit the first."""
    jobs = [Request(job, 1, 10, 0, 1.0, 20.0 * job) for job in range(4)]
    for name, slots in (("list_scheduling", [0, 1, 0, 1]), ("first_fit", [0, 0, 0, 0])):
        module = job_schedulers.find(name)
        found = online.schedule(module, jobs, cluster(2), MODEL, module.Options(), seed=1)
        assert [one.gpus[0].slot for one in found.jobs] == slots


def test_without_arrivals_a_search_is_asked_once() -> None:
    jobs, where = drawn(3, 9, 4), cluster(4, 2)
    module = job_schedulers.find("sjf_bco")
    assert online.schedule(module, jobs, where, MODEL, module.Options(), seed=1) == asked("sjf_bco", jobs, where)


def test_held_gpus_are_held() -> None:
    """A job that runs is where it is from the beginning, whatever the rule would have given it."""
    jobs = [Request(5, 2, 10, 0, 1.0), Request(6, 2, 10, 0, 1.0)]
    where = replace(cluster(2, 2), held={5: (Gpu("h2", 0), Gpu("h2", 1))})
    first, second = asked("tightest_fit", jobs, where).jobs
    assert {gpu.host for gpu in first.gpus} == {"h2"} and {gpu.host for gpu in second.gpus} == {"h1"}
    assert second.start == At(0)


def test_las_puts_long_jobs_behind_by_hand() -> None:
    """One GPU. Job 0 has had its 3 GPU-seconds at 3 s, and is stopped then for job 1, which came at 2 s; job 2 comes at 4 s."""
    jobs = [Request(0, 1, 10, 0, 1.0), Request(1, 1, 2, 0, 1.0, 2.0), Request(2, 1, 2, 0, 1.0, 4.0)]
    for restart, ends in (("0s", [14, 5, 7]), ("500ms", [14.5, 5, 7])):
        ran = carried_out(asked(f"las:threshold=3,restart={restart}", jobs, cluster(1)), jobs, cluster(1))
        assert [one.end_s for one in ran] == pytest.approx(ends)
        assert [one.start_s for one in ran] == [0, 3, 5] and len(ran[0].stints) == 2 and not ran[1].stints


def test_las_without_a_threshold_is_first_come_first_served() -> None:
    jobs = [Request(0, 2, 5, 0, 1.0), Request(1, 1, 5, 0, 1.0, 1.0)]
    ran = carried_out(asked("las:threshold=1e9", jobs, cluster(2)), jobs, cluster(2))
    assert [one.start_s for one in ran] == [0, 5] and not any(one.stints for one in ran)


def test_cassini_places_where_jobs_fit_together() -> None:
    """Job 2 needs two servers: with job 0, whose communication leaves it room, or with job 1, which has none to leave."""
    model = Model(1e9, alpha=0)
    scores = placing.Scores([Request(0, 2, 1, 2_500_000, 0.06), Request(1, 2, 1, 5_000_000, 0.0)], model, 24)
    assert scores.score(frozenset({0})) == 1 and scores.score(frozenset({0, 1})) < 1
    jobs = [Request(job, 2, 1, 2_500_000, 0.06) for job in range(2)]
    assert placing.Scores(jobs, model, 24).score(frozenset({0, 1})) == pytest.approx(1.0), "20 of 80 ms each"
    assert not placing.has_loop([frozenset({0, 1}), frozenset({1, 2})])
    assert placing.has_loop([frozenset({0, 1}), frozenset({1, 2}), frozenset({2, 0})])
    assert placing.has_loop([frozenset({0, 1, 2}), frozenset({1, 2})])


def test_cassini_never_closes_a_loop() -> None:
    """Three jobs that each need two of three servers of 2 GPUs, of which each has taken one: the third would close it."""
    jobs, where = [Request(job, 3, 10, 10**6, 0.01) for job in range(5)], cluster(2, 2, 2, 2, 1, 1)
    ran = carried_out(asked("cassini", jobs, where), jobs, where)
    for at in sorted(one.start_s for one in ran):
        links: dict[str, set[int]] = {}
        for one in ran:
            if one.start_s <= at < one.end_s and len({gpu.host for gpu in one.gpus}) > 1:
                for gpu in one.gpus:
                    links.setdefault(gpu.host, set()).add(one.request.job)
        assert not placing.has_loop(list({frozenset(there) for there in links.values() if len(there) > 1}))

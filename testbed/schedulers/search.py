"""Shared parts of schedulers that make complete schedules and keep the best: a trial, and the search over trials.

A trial takes jobs in an order, and gives each its GPUs by a rule (`Pick`) once enough are free whose accumulated work,
with this job's, is at most θ (the U of SJF-BCO's report). While the first in line gets none, the others wait, too,
unless ``backfill``. A trial's makespan comes from the contention model, not from the estimates that are compared with
θ, and only a complete schedule counts.

The report leaves three values open, which are options here (`Limits`). Estimates are F · τ of an isolated job on the
fewest servers that hold it. T, the end of the search over θ, is twice first fit's makespan. The bound u, by which the
report divides estimates, is 1. Since u is one number for all jobs, it only stretches θ: here θ stands for u θ, and ends
at u T.

A search has the complete list of jobs (`testbed.schedulers.online` passes only those that have arrived); each trial's
actions at an instant depend on those that have arrived. Running jobs (`Cluster.held`) keep their GPUs. Earlier work of
GPUs (`Cluster.worked_s`) counts in the search for the least busy ones, not in the comparison with θ.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from testbed.core import options
from testbed.core.errors import RequestError
from testbed.core.placing import Assignments, Request
from testbed.models.cluster import Numbers, Policy, Ran, Servers, Start, State, Stop, Wake, assignments, simulate
from testbed.models.contention import Contended, Model
from testbed.schedulers.cluster import Cluster
from testbed.schedulers.line import Line

Bools = npt.NDArray[np.bool_]
THETAS = 12
ORDERS_MEANING = "job orders to try: the given one, then shuffled ones; default 1"
BACKFILL_MEANING = "whether later jobs may overtake a waiting one: yes or no (default)"
RHOS = ("fewest", "most", "worst")


@dataclass(frozen=True)
class Limits:
    """Options of those that search for θ."""

    thetas: int = options.option(
        THETAS,
        f"values of θ to try, from the lower bound to T; default {THETAS}",
        options.Integer(1, 1000),
    )
    horizon: float = options.option(2.0, "T ÷ first fit's makespan; default 2", options.Number(1, 10**6))
    rho: str = options.option(
        "fewest",
        "placement that ρ̂ assumes: fewest servers (fewest, default), one GPU per server (most), or that under full contention (worst)",
        options.OneOf(*RHOS),
    )
    u: str = options.option(
        "1",
        "divisor of ρ̂: 1 (default) or bounds (worst ÷ best execution time)",
        options.OneOf("1", "bounds"),
    )
    backfill: bool = options.option(False, BACKFILL_MEANING, options.Boolean())


@dataclass(frozen=True)
class LimitsAndOrders(Limits):
    """Options of those that search for θ and for an order."""

    orders: int = options.option(1, ORDERS_MEANING, options.Integer(1, 100_000))


@dataclass(frozen=True)
class Orders:
    """Options of those that search for an order alone."""

    orders: int = options.option(1, ORDERS_MEANING, options.Integer(1, 100_000))
    backfill: bool = options.option(False, BACKFILL_MEANING, options.Boolean())


@dataclass(frozen=True)
class Offer:
    """The candidates of a rule."""

    number: int
    request: Request
    state: State
    load_s: npt.NDArray[np.float64]  # U, by GPU: assigned work so far, in seconds
    candidates: Bools  # free, and within θ with this job
    law: Contended


Pick = Callable[[Offer], Numbers | None]  # None: wait


class Instance:
    """Jobs and a cluster, ready for trials. Raises `RequestError` if a job can never run."""

    def __init__(self, requests: Sequence[Request], cluster: Cluster, model: Model, rho: str = "fewest") -> None:
        self.requests, self.servers, self.model = requests, Servers(tuple(cluster.gpus)), model
        for request in requests:
            if request.gpus > len(self.servers.gpus):
                raise RequestError(
                    f"gpus: job {request.job} asks for {request.gpus} GPUs, but the cluster has {len(self.servers.gpus)}. Give it more "
                    "servers, or the job fewer GPUs."
                )
        self.estimates_s = self._estimates_s(rho)
        self.worked_s = np.array(cluster.worked_s) if cluster.worked_s else np.zeros(len(self.servers.gpus))
        numbers = {gpu: number for number, gpu in enumerate(self.servers.gpus)} if cluster.held else {}
        self.held = {
            number: np.array([numbers[gpu] for gpu in cluster.held[request.job]], dtype=np.int64)
            for number, request in enumerate(requests)
            if request.job in cluster.held
        }

    def run(self, policy: Policy, law: Contended | None = None, until_s: float = math.inf) -> tuple[Ran, ...] | None:
        """The result of a policy."""
        law = law or self.law()
        beside = self._around_held_gpus(policy) if self.held else policy
        return simulate(self.requests, self.servers, beside, law, slot_s=self.model.slot_s, until_s=until_s)

    def _around_held_gpus(self, policy: Policy) -> Policy:
        """The policy, once the jobs that run are where they are."""

        def asked(state: State) -> Iterator[Start | Stop | Wake]:
            for number in [number for number in state.arrived if number in self.held]:
                yield number, self.held[number]
            state.arrived = [number for number in state.arrived if number not in self.held]
            yield from policy(state)

        return asked

    def law(self) -> Contended:
        """The model's law, with no job active yet."""
        return Contended(self.model, len(self.servers.sizes))

    def orders(self, count: int, seed: int) -> list[list[int]]:
        """Job orders: the given one, then others sampled by the seed."""
        draw = random.Random(f"orders {seed}")
        given = list(range(len(self.requests)))
        return [given, *(draw.sample(given, len(given)) for _ in range(count - 1))]

    def smallest_first(self) -> list[int]:
        """Return the jobs ordered by GPUs, not by duration."""
        return sorted(range(len(self.requests)), key=lambda number: self.requests[number].gpus)

    def horizon_s(self, limits: Limits) -> float:
        """u T; T by first fit's makespan, all orders and θ left open."""
        ran = self.run(Trial(self, first_fit, range(len(self.requests))))
        assert ran is not None  # first fit takes any free GPUs
        u = self._longer() if limits.u == "bounds" else 1.0
        return u * limits.horizon * max(one.end_s for one in ran)

    def _longer(self) -> float:
        """By how much longer than at its best a job can take, over all jobs and placements."""
        best, worst = self._estimates_s("fewest"), self._estimates_s("worst")
        return float(np.max(worst[best > 0] / best[best > 0], initial=1.0))

    def _estimates_s(self, rho: str) -> npt.NDArray[np.float64]:
        return np.array([estimate_s(request, self.servers, self.model, rho) for request in self.requests])

    def lowest_s(self) -> float:
        """Return a lower bound of feasible θ, in seconds: the longest job, and all work spread evenly."""
        if not len(self.requests):
            return 0.0
        work = sum(request.gpus * took for request, took in zip(self.requests, self.estimates_s, strict=True))
        return float(max(self.estimates_s.max(), work / len(self.servers.gpus)))

    def thetas(self, limits: Limits) -> list[float]:
        """A geometric grid from the lower bound to u T."""
        low, high = self.lowest_s() * (1 + 1e-9), self.horizon_s(limits)
        if not low or high <= low:
            return [max(low, high)]
        return [float(theta) for theta in np.geomspace(low, high, limits.thetas)]


def estimate_s(request: Request, servers: Servers, model: Model, rho: str) -> float:
    """ρ̂ by one of `RHOS`."""
    on = servers.fewest(request.gpus) if rho == "fewest" else min(request.gpus, len(servers.sizes))
    contention = int(servers.sizes.max()) if rho == "worst" else 1
    return request.iterations * model.iteration_s(request, on, contention)


class Trial:
    """A policy of `testbed.models.cluster`: jobs in an order, GPUs by a rule."""

    def __init__(
        self, instance: Instance, pick: Pick, order: Sequence[int], theta_s: float = math.inf, *, backfill: bool = False
    ) -> None:
        self.law = instance.law()
        self.bound = False  # whether θ has kept a free GPU from a job
        self._instance, self._pick, self._theta_s, self._backfill = instance, pick, theta_s, backfill
        self._load_s = np.zeros(len(instance.servers.gpus))
        for number, gpus in instance.held.items():
            self._load_s[gpus] += instance.estimates_s[number]
        self._line = Line(order, instance.requests)

    def __call__(self, state: State) -> Iterator[Start]:
        for number in state.arrived:
            self._line.add(number)
        if self._backfill:
            yield from self._all(state)
            return
        while len(self._line):
            number = self._line.first()
            gpus = self._place(number, state)
            if gpus is None:
                break
            self._line.remove(number)
            yield number, gpus

    def _all(self, state: State) -> Iterator[Start]:
        """Yield every job that fits, in the order of ranks."""
        rank = -1
        while ranks := [group.following(rank) for _, group in self._line.fitting(state.room)]:
            if not (ahead := [one for one in ranks if one is not None]):
                return
            rank = min(ahead)
            number = self._line.order[rank]
            gpus = self._place(number, state)
            if gpus is not None:
                self._line.remove(number)
                yield number, gpus

    def _place(self, number: int, state: State) -> Numbers | None:
        request, took_s = self._instance.requests[number], self._instance.estimates_s[number]
        if state.room < request.gpus:
            return None
        candidates = state.free
        if self._theta_s < math.inf:
            candidates = state.free & (self._load_s <= self._theta_s - took_s)
            self.bound = self.bound or bool((candidates != state.free).any())
        gpus = self._pick(Offer(number, request, state, self._instance.worked_s + self._load_s, candidates, self.law))
        if gpus is not None:
            self._load_s[gpus] += took_s
        return gpus


def first_fit(offer: Offer) -> Numbers | None:
    """The first candidates, server by server."""
    found = np.flatnonzero(offer.candidates)
    return found[: offer.request.gpus] if len(found) >= offer.request.gpus else None


def least_loaded(offer: Offer) -> Numbers | None:
    """The candidates with the least accumulated work."""
    return _take(np.flatnonzero(offer.candidates), offer.load_s, offer.request.gpus)


def tightest_fit(offer: Offer) -> Numbers | None:
    """Return candidates on the server with the fewest that hold the complete job; otherwise on the fewest servers;
    None: too few."""
    servers, wanted, candidates = offer.state.servers, offer.request.gpus, offer.candidates
    counts = offer.state.idle
    if candidates is not offer.state.free:
        counts = np.bincount(servers.of[candidates], minlength=len(servers.sizes))
    holding = np.flatnonzero(counts >= wanted)
    if len(holding):
        inside = servers.members[holding[counts[holding].argmin()]]
        found: Numbers = inside[candidates[inside]][:wanted]
        return found
    fullest = (-counts).argsort(kind="stable")
    room = counts[fullest].cumsum()
    if room[-1] < wanted:
        return None
    on = [servers.members[server] for server in fullest[: room.searchsorted(wanted) + 1].tolist()]
    return np.concatenate([inside[candidates[inside]] for inside in on])[:wanted]


def _take(found: Numbers, keys: npt.NDArray[np.float64], wanted: int) -> Numbers | None:
    """The ``found`` with the least keys, earlier ones first among equals."""
    if len(found) < wanted:
        return None
    return found[np.argsort(keys[found], kind="stable")[:wanted]]


def search(
    instance: Instance,
    picks: Sequence[Pick],
    orders: Sequence[Sequence[int]],
    thetas: Sequence[float] = (math.inf,),
    *,
    backfill: bool = False,
    before: int = 0,
) -> Assignments:
    """Return the complete schedule with the smallest makespan, over every order, rule and θ; the first among equals.

    A θ that never rejected a GPU makes larger ones superfluous. ``before``: number of schedules evaluated already.
    """
    best = Best(instance, before)
    for order in orders:
        for pick in picks:
            for theta in sorted(thetas):
                if not best.attempt(Trial(instance, pick, order, theta, backfill=backfill)).bound:
                    break
    return best.assignments()


def best_within_limits(
    pick: Pick,
    requests: Sequence[Request],
    cluster: Cluster,
    model: Model,
    options: LimitsAndOrders,
    *,
    seed: int,
) -> Assignments:
    """The best over θ and orders, by one rule."""
    instance = Instance(requests, cluster, model, options.rho)
    orders = instance.orders(options.orders, seed)
    return search(instance, [pick], orders, instance.thetas(options), backfill=options.backfill, before=1)


def as_they_arrive(
    pick: Pick, requests: Sequence[Request], cluster: Cluster, model: Model, options: LimitsAndOrders
) -> Assignments | None:
    """Schedule arriving jobs in one pass without θ, with the result of `testbed.schedulers.online` for a single rule
    and order.

    None for several orders, which must be compared. Whenever jobs are planned again, free GPUs have no work yet and θ
    is at least any job's estimate. So θ withholds no free GPU from a job that starts at that moment, and every θ starts
    the same jobs on the same GPUs.
    """
    if options.orders > 1:
        return None
    instance = Instance(requests, cluster, model, options.rho)
    trial = Trial(instance, pick, range(len(instance.requests)), backfill=options.backfill)
    ran = instance.run(trial, trial.law)
    assert ran is not None  # the first in line gets free GPUs
    return assignments(ran)


class Best:
    """The best schedule so far, and how many were evaluated."""

    def __init__(self, instance: Instance, trials: int = 0) -> None:
        self.makespan_s, self.trials = math.inf, trials
        self._instance = instance
        self._ran: tuple[Ran, ...] | None = None

    def attempt(self, trial: Trial) -> Trial:
        """Evaluate a trial, no further than to the best makespan."""
        self.trials += 1
        ran = self._instance.run(trial, trial.law, self.makespan_s)
        if ran is not None and (makespan := max((one.end_s for one in ran), default=0.0)) < self.makespan_s:
            self._ran, self.makespan_s = ran, makespan
        return trial

    def assignments(self) -> Assignments:
        """Raises `RequestError` if no schedule was complete."""
        if self._ran is None:
            raise RequestError(
                f"scheduler: none of {self.trials} schedules completes every job within θ ≤ T. Try another job order or "
                "more values of θ (`thetas=`)."
            )
        return assignments(self._ran, self.trials)

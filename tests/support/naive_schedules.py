"""The schedulers' policies as they are defined, job by job: slow, and the reference for those of `job_schedulers` and `testbed.models.cluster.follow`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from testbed.core.placing import Assignments, At, Request
from testbed.models.cluster import Numbers, Policy, Servers, Start, State, Stop, Wake, assignments
from testbed.models.contention import Model
from testbed.schedulers import search
from testbed.schedulers.job import Cluster, fifo, las, srsf


def follow(assigned: Assignments, requests: Sequence[Request], servers: Servers) -> tuple[list[Request], Policy]:
    """The requests and the policy that carry out a schedule; a job that starts `At` a time arrives no earlier."""
    numbers = {gpu: number for number, gpu in enumerate(servers.gpus)}
    given = {one.job: one for one in assigned.jobs}
    number_of = {request.job: number for number, request in enumerate(requests)}
    gpus = [np.array([numbers[gpu] for gpu in given[request.job].gpus], dtype=np.int64) for request in requests]
    starts = [given[request.job].start for request in requests]
    stints = {number: list(stints) for number, request in enumerate(requests) if (stints := given[request.job].stints)}

    def policy(state: State) -> Iterator[Start | Stop | Wake]:
        for number in sorted(stints):  # those that are stopped in between, by the clock
            if number in state.ends_s and len(stints[number]) > 1 and stints[number][0].end_s <= state.now_s:
                stints[number].pop(0)
                yield Stop(number, stints[number][0].restart_s)
                yield Wake(stints[number][0].start_s)
        for number in sorted(state.waiting):
            start = starts[number]
            if number in stints:
                following = stints[number][0]
                on = np.array([numbers[gpu] for gpu in following.gpus], dtype=np.int64)
                if following.start_s <= state.now_s and state.free[on].all():
                    yield number, on
                    if len(stints[number]) > 1:
                        yield Wake(following.end_s)
                elif following.start_s > state.now_s:
                    yield Wake(following.start_s)
                continue
            ended = isinstance(start, At) or all(number_of[job] in state.done for job in start.jobs)
            if ended and state.free[gpus[number]].all():
                yield number, gpus[number]

    return [
        replace(request, arrival_s=max(request.arrival_s, start.s)) if isinstance(start, At) else request
        for request, start in zip(requests, starts, strict=True)
    ], policy


def by_fifo(requests: Sequence[Request], cluster: Cluster, model: Model, options: fifo.Options) -> Assignments:
    instance = search.Instance(requests, cluster, model)

    def policy(state: State) -> Iterator[Start]:
        for number in list(state.waiting):
            if requests[number].gpus > state.idle.sum():
                break
            yield number, np.flatnonzero(state.free)[: requests[number].gpus]
        if not options.backfill or not state.waiting:
            return
        first, *others = list(state.waiting)
        due_s, spare = _foreseen(state, requests[first].gpus)
        for number in others:
            wanted, idle = requests[number].gpus, int(state.idle.sum())
            ends_in_time = state.now_s + instance.estimates_s[number] <= due_s
            if wanted <= idle and (ends_in_time or wanted <= spare):
                spare -= 0 if ends_in_time else wanted
                yield number, np.flatnonzero(state.free)[:wanted]

    ran = instance.run(policy)
    assert ran is not None
    return assignments(ran)


def _foreseen(state: State, wanted: int) -> tuple[float, int]:
    """When so many GPUs will be free, and how many more then."""
    free = int(state.idle.sum())
    for end_s, number in sorted((end, number) for number, end in state.ends_s.items()):
        free += state.requests[number].gpus
        if free >= wanted:
            return end_s, free - wanted
    raise AssertionError("a job is larger than the cluster")


def by_las(requests: Sequence[Request], cluster: Cluster, model: Model, options: las.Options) -> Assignments:
    instance = search.Instance(requests, cluster, model)
    law = instance.law()
    attained = [0.0] * len(requests)
    since_s = 0.0

    def policy(state: State) -> Iterator[Start | Stop | Wake]:
        nonlocal since_s
        for job in state.ends_s:
            attained[job] += requests[job].gpus * (state.now_s - since_s)
        since_s = state.now_s
        behind = {job: attained[job] >= options.threshold * (1 - 1e-12) for job in (*state.ends_s, *state.waiting)}
        room, chosen = len(instance.servers.gpus), []
        for job in sorted(behind, key=lambda job: (behind[job], requests[job].arrival_s, job)):
            if requests[job].gpus <= room:
                room -= requests[job].gpus
                chosen.append(job)
        for job in sorted(set(state.ends_s) - set(chosen)):
            yield Stop(job, options.restart)
        for job in [job for job in chosen if job in state.waiting]:
            offer = search.Offer(job, requests[job], state, np.zeros(len(state.free)), state.free, law)
            gpus = tightest_fit(offer)
            assert gpus is not None  # they were counted
            yield job, gpus
        for job in chosen:
            if not behind[job]:
                yield Wake(state.now_s + (options.threshold - attained[job]) / requests[job].gpus)

    ran = instance.run(policy, law)
    assert ran is not None
    return assignments(ran)


def by_srsf(requests: Sequence[Request], cluster: Cluster, model: Model, options: srsf.Options) -> Assignments:
    instance = search.Instance(requests, cluster, model)
    law = instance.law()
    service = [took * one.gpus for took, one in zip(instance.estimates_s, requests, strict=True)]
    order = sorted(range(len(requests)), key=service.__getitem__)

    def pick(offer: search.Offer) -> Numbers | None:
        gpus = tightest_fit(offer)
        if gpus is None:
            return None
        servers = {int(server) for server in offer.state.servers.of[gpus]}
        if len(servers) == 1 or (crowd := offer.law.crowd(servers)) == 1:
            return gpus
        if options.share != "ada":
            return gpus if crowd <= int(options.share) else None
        others = {number for server in servers for number in offer.law.spanning[server]}
        return gpus if crowd == 2 and all(_better(instance, offer, other, len(servers)) for other in others) else None

    def policy(state: State) -> Iterator[Start]:
        for number in order:
            if number in state.waiting and requests[number].gpus <= state.idle.sum():
                gpus = pick(
                    search.Offer(number, requests[number], state, np.zeros(len(state.free)), state.free.copy(), law)
                )
                if gpus is not None:
                    yield number, gpus

    ran = instance.run(policy, law)
    assert ran is not None
    return assignments(ran)


def _better(instance: search.Instance, offer: search.Offer, other: int, spans: int) -> bool:
    """Whether the two end sooner, in the sum, if this one starts beside the ``other`` than if it waits for it."""
    new, old, model = offer.request, instance.requests[other], instance.model
    new_s, old_s = new.iterations * model.iteration_s(new, spans), offer.state.ends_s[other] - offer.state.now_s
    slower_new = model.iteration_s(new, spans, 2) / model.iteration_s(new, spans) if new_s else 1.0
    over = max(2, instance.servers.fewest(old.gpus))
    slower_old = model.iteration_s(old, over, 2) / model.iteration_s(old, over) if old_s else 1.0
    if new_s * slower_new <= old_s * slower_old:
        ends = new_s * slower_new, old_s + new_s * slower_new * (1 - 1 / slower_old)
    else:
        ends = old_s * slower_old, new_s + old_s * slower_old * (1 - 1 / slower_new)
    return sum(ends) < old_s + (old_s + new_s)


def tightest_fit(offer: search.Offer) -> Numbers | None:
    """The server with the fewest candidates that hold the whole job; where none does, the fewest servers."""
    servers, wanted = offer.state.servers, offer.request.gpus
    counts = np.bincount(servers.of[offer.candidates], minlength=len(servers.sizes))
    holding = np.flatnonzero(counts >= wanted)
    if len(holding):
        server = holding[np.argmin(counts[holding])]
        return np.flatnonzero(offer.candidates & (servers.of == server))[:wanted]
    found = np.flatnonzero(offer.candidates)
    return _take(found, -counts[servers.of].astype(float) * len(counts) + servers.of, wanted)


def _take(found: Numbers, keys: npt.NDArray[np.float64], wanted: int) -> Numbers | None:
    """The ``found`` with the least keys, earlier ones first among equals."""
    if len(found) < wanted:
        return None
    return found[np.argsort(keys[found], kind="stable")[:wanted]]

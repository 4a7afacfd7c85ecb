"""A cluster as events: jobs arrive, get GPUs, run, end, and free them. The one such loop; nothing in it takes time.

Who starts where is asked of a policy at every arrival and end; how fast active jobs run, of a law (`theory.contention` for
equation 8). Between events speeds are constant, so that the ends are exact. Ties go by job number. A policy may also stop a
job, which goes on from where it was once it gets GPUs again.
"""

from __future__ import annotations

import heapq
import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

import numpy as np
import numpy.typing as npt

from core.placing import After, Assignment, Assignments, At, Gpu, Request, Stint

Numbers = npt.NDArray[np.int64]
Start = tuple[int, Numbers]  # the number of a request, and of its GPUs, by rank


@dataclass(frozen=True)
class Stop:
    """A running job gives its GPUs back; when it gets some again it first needs ``restart_s`` to go on."""

    number: int
    restart_s: float = 0.0


@dataclass(frozen=True)
class Wake:
    """The policy wants to be asked at this time, too."""

    at_s: float


class Law(Protocol):
    """How fast active jobs run. Jobs and servers go by number."""

    def starts(self, number: int, request: Request, servers: Sequence[int]) -> Iterable[int]: ...

    def ends(self, number: int) -> Iterable[int]: ...

    def iteration_s(self, number: int) -> float: ...

    def contention(self, number: int) -> int: ...


@dataclass(frozen=True)
class Servers:
    """GPUs by number, and the number of the server that each is in."""

    gpus: tuple[Gpu, ...]
    of: Numbers = field(init=False, repr=False, compare=False)
    sizes: Numbers = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        hosts = {host: number for number, host in enumerate(dict.fromkeys(gpu.host for gpu in self.gpus))}
        object.__setattr__(self, "of", np.array([hosts[gpu.host] for gpu in self.gpus], dtype=np.int64))
        object.__setattr__(self, "sizes", np.bincount(self.of, minlength=len(hosts)).astype(np.int64))

    def fewest(self, gpus: int) -> int:
        """On how few of them so many GPUs have room."""
        return int(np.searchsorted(np.cumsum(np.sort(self.sizes)[::-1]), gpus) + 1)


@dataclass
class _Running:
    start_s: float
    gpus: Numbers
    after: tuple[int, ...]
    left: float  # iterations
    since_s: float  # from when on it comes on by them: later than now in a restart
    restart_s: float = 0.0
    began_with: float = 0.0  # iterations left when this stint began
    iteration_s: float = 0.0
    contention: int = 0
    most: int = 0
    seen_s: float = 0.0
    contention_s: float = 0.0  # contention · time, up to `seen_s`
    version: int = 0


@dataclass
class _Stopped:
    """What is kept of a job between its stints."""

    left: float
    restart_s: float
    most: int
    contention_s: float
    stints: tuple[Stint, ...]
    after: tuple[int, ...]


@dataclass(frozen=True)
class Ran:
    """What became of a job; times in seconds."""

    request: Request
    gpus: tuple[Gpu, ...]
    start_s: float
    end_s: float
    contention: int  # the largest p it met
    after: tuple[int, ...]  # jobs at whose end it could start
    mean_contention: float = 0.0  # p over the time that it held GPUs
    stints: tuple[Stint, ...] = ()  # of a job that was stopped in between: all of them

    @property
    def held(self) -> tuple[Stint, ...]:
        """When it held which GPUs."""
        return self.stints or (Stint(self.gpus, self.start_s, self.end_s, self.request.iterations),)


@dataclass
class State:
    """What a policy sees. It may read everything, and changes nothing."""

    servers: Servers
    requests: Sequence[Request]
    now_s: float
    arrived: list[int]  # numbers of the requests that came at this moment
    waiting: dict[int, None]  # of those that have not started, in the order of arrival
    free: npt.NDArray[np.bool_]  # by GPU
    idle: Numbers  # free GPUs, by server
    ends_s: dict[int, float]  # of those that run, when, if nothing changes
    done: dict[int, Ran]


Policy = Callable[[State], Iterator[Start | Stop | Wake]]  # each is in force before the next one is asked for


def simulate(
    requests: Sequence[Request], servers: Servers, policy: Policy, law: Law, *, slot_s: float = 0.0, until_s: float = math.inf
) -> tuple[Ran, ...] | None:  # fmt: skip
    """Every job from arrival to end, in the order of the requests.

    None if it does not come to an end: the policy starts nobody while nobody runs or is still to come, or a job is sure to end
    after ``until_s``. With ``slot_s`` everything happens where a slot begins.
    """

    def slotted(s: float) -> float:
        return math.ceil(s / slot_s - 1e-9) * slot_s if slot_s else s

    done: dict[int, Ran] = {}
    free = np.ones(len(servers.gpus), dtype=bool)
    state = State(servers, requests, 0.0, [], {}, free, servers.sizes.copy(), {}, done)
    arrivals = sorted((slotted(request.arrives_s), number) for number, request in enumerate(requests))[::-1]
    held_by = np.full(len(servers.gpus), -1, dtype=np.int64)
    running: dict[int, _Running] = {}
    stopped: dict[int, _Stopped] = {}
    ending: list[tuple[float, int, int]] = []
    wakes: list[float] = []
    versions = itertools.count(1)

    def retime(numbers: Iterable[int]) -> None:
        for number in numbers:
            job = running[number]
            if job.iteration_s:
                job.left = max(0.0, job.left - max(0.0, state.now_s - job.since_s) / job.iteration_s)
            job.since_s, job.iteration_s = max(job.since_s, state.now_s), law.iteration_s(number)
            job.contention_s += job.contention * (state.now_s - job.seen_s)
            job.seen_s, job.contention = state.now_s, law.contention(number)
            job.most = max(job.most, job.contention)
            job.version = next(versions)
            end = slotted(job.since_s + job.left * job.iteration_s)
            state.ends_s[number] = end
            heapq.heappush(ending, (end, number, job.version))

    def free_gpus(number: int) -> _Running:
        job = running.pop(number)
        del state.ends_s[number]
        state.free[job.gpus] = True
        state.idle += np.bincount(servers.of[job.gpus], minlength=len(state.idle))
        job.contention_s += job.contention * (state.now_s - job.seen_s)
        return job

    def stint(job: _Running, end_s: float, iterations: float) -> Stint:
        return Stint(tuple(servers.gpus[gpu] for gpu in job.gpus), job.start_s, end_s, iterations, job.restart_s)

    def end(number: int, end_s: float) -> None:
        job, before = free_gpus(number), stopped.pop(number, None)
        last = stint(job, end_s, job.began_with)
        stints = (*before.stints, last) if before is not None and before.stints else ()
        held_s = sum(each.end_s - each.start_s for each in stints or (last,))
        done[number] = Ran(
            requests[number], last.gpus, stints[0].start_s if stints else job.start_s, end_s, job.most, job.after,
            job.contention_s / held_s if held_s else 0.0, stints,
        )  # fmt: skip
        retime(law.ends(number))

    def stop(number: int, restart_s: float) -> None:
        retime([number])
        job, before = free_gpus(number), stopped.get(number)
        stints = () if before is None else before.stints
        stints = (*stints, stint(job, state.now_s, job.began_with - job.left))
        stopped[number] = _Stopped(job.left, restart_s, job.most, job.contention_s, stints, job.after)
        state.waiting[number] = None
        retime(law.ends(number))

    def start(number: int, gpus: Numbers, after: set[int]) -> None:
        request = requests[number]
        del state.waiting[number]
        if len(gpus) != request.gpus or not state.free[gpus].all() or len(np.unique(gpus)) != len(gpus):
            raise AssertionError(f"job {request.job} was given GPUs that it cannot have: {gpus}")
        state.free[gpus] = False
        own = servers.of[gpus]
        state.idle -= np.bincount(own, minlength=len(state.idle))
        after = after | {requests[other].job for other in held_by[gpus].tolist() if other >= 0}
        held_by[gpus] = number
        now = state.now_s
        before = stopped.get(number) or _Stopped(request.iterations, 0.0, 0, 0.0, (), tuple(sorted(after)))
        running[number] = _Running(
            now, gpus, before.after, before.left, now + before.restart_s, before.restart_s, before.left,
            most=before.most, seen_s=now, contention_s=before.contention_s,
        )  # fmt: skip
        retime(law.starts(number, request, list(dict.fromkeys(own.tolist()))))

    while len(done) < len(requests):
        ended: list[int] = []
        while ending and ending[0][0] <= state.now_s:
            end_s, number, version = heapq.heappop(ending)
            if number in running and running[number].version == version:
                end(number, end_s)
                ended.append(number)
        while wakes and wakes[0] <= state.now_s:
            heapq.heappop(wakes)
        state.arrived = []
        while arrivals and arrivals[-1][0] <= state.now_s:
            state.arrived.append(arrivals.pop()[1])
        state.waiting.update(dict.fromkeys(state.arrived))
        for said in policy(state):
            if isinstance(said, Wake):
                if said.at_s > state.now_s:
                    heapq.heappush(wakes, slotted(said.at_s))
            elif isinstance(said, Stop):
                stop(said.number, said.restart_s)
            else:
                number, gpus = said
                start(number, gpus, {requests[ended[0]].job} if ended else set())
                if state.ends_s[number] > until_s and law.contention(number) <= 1:
                    return None  # contention only adds to it
        while ending and (ending[0][1] not in running or running[ending[0][1]].version != ending[0][2]):
            heapq.heappop(ending)
        if len(done) == len(requests):
            break
        following = min(
            ending[0][0] if ending else math.inf, arrivals[-1][0] if arrivals else math.inf, wakes[0] if wakes else math.inf
        )
        if following > until_s or following == math.inf:
            return None
        state.now_s = max(state.now_s, following)
    return tuple(done[number] for number in range(len(requests)))


def assignments(ran: Sequence[Ran], trials: int = 1) -> Assignments:
    """What a scheduler answers that has simulated this: under the same law it comes out the same."""
    return Assignments(
        tuple(
            Assignment(
                one.request.job,
                one.gpus,
                After(one.after) if one.after else At(one.start_s),
                one.end_s - one.start_s,
                one.stints,
            )
            for one in ran
        ),
        trials,
    )


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
                    yield Wake(following.end_s)
                elif following.start_s > state.now_s:
                    yield Wake(following.start_s)
                continue
            ended = isinstance(start, At) or all(number_of[job] in state.done for job in start.jobs)
            if ended and state.free[gpus[number]].all():
                yield number, gpus[number]

    return [
        replace(request, arrives_s=max(request.arrives_s, start.s)) if isinstance(start, At) else request
        for request, start in zip(requests, starts, strict=True)
    ], policy

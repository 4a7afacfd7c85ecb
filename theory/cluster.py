"""A cluster as events: jobs arrive, get GPUs, run, end, and free them. The one such loop; nothing in it takes time.

Who starts where is asked of a policy at every arrival and end; how fast active jobs run, of a law (`theory.contention` for
equation 8). Between events speeds are constant, so that the ends are exact. Ties go by job number.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

import numpy as np
import numpy.typing as npt

from core.placing import After, Assignment, Assignments, At, Gpu, Request

Numbers = npt.NDArray[np.int64]
Start = tuple[int, Numbers]  # the number of a request, and of its GPUs, by rank


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
    since_s: float
    iteration_s: float = 0.0
    contention: int = 0  # the most so far
    version: int = 0


@dataclass(frozen=True)
class Ran:
    """What became of a job; times in seconds."""

    request: Request
    gpus: tuple[Gpu, ...]
    start_s: float
    end_s: float
    contention: int  # the largest p it met
    after: tuple[int, ...]  # jobs at whose end it could start


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


Policy = Callable[[State], Iterator[Start]]  # each start is in force before the next one is asked for


@dataclass(frozen=True)
class Metrics:
    """Of a whole schedule; times in seconds, completion and queueing since arrival."""

    makespan_s: float
    mean_completion_s: float
    p95_completion_s: float
    mean_queueing_s: float
    utilisation: float  # GPU-seconds held ÷ GPUs · makespan
    max_contention: int


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
    ending: list[tuple[float, int, int]] = []

    def retime(numbers: Iterable[int]) -> None:
        for number in numbers:
            one = running[number]
            if one.iteration_s:
                one.left = max(0.0, one.left - (state.now_s - one.since_s) / one.iteration_s)
            one.since_s, one.iteration_s = state.now_s, law.iteration_s(number)
            one.contention = max(one.contention, law.contention(number))
            one.version += 1
            end = slotted(state.now_s + one.left * one.iteration_s)
            state.ends_s[number] = end
            heapq.heappush(ending, (end, number, one.version))

    while len(done) < len(requests):
        ended: list[int] = []
        while ending and ending[0][0] <= state.now_s:
            end, number, version = heapq.heappop(ending)
            if number not in running or running[number].version != version:
                continue
            one = running.pop(number)
            del state.ends_s[number]
            state.free[one.gpus] = True
            state.idle += np.bincount(servers.of[one.gpus], minlength=len(state.idle))
            done[number] = Ran(
                requests[number], tuple(servers.gpus[gpu] for gpu in one.gpus), one.start_s, end, one.contention, one.after
            )  # fmt: skip
            ended.append(number)
            retime(law.ends(number))
        state.arrived = []
        while arrivals and arrivals[-1][0] <= state.now_s:
            state.arrived.append(arrivals.pop()[1])
        state.waiting.update(dict.fromkeys(state.arrived))
        for number, gpus in policy(state):
            request = requests[number]
            del state.waiting[number]
            if len(gpus) != request.gpus or not state.free[gpus].all() or len(np.unique(gpus)) != len(gpus):
                raise AssertionError(f"job {request.job} was given GPUs that it cannot have: {gpus}")
            state.free[gpus] = False
            own = servers.of[gpus]
            state.idle -= np.bincount(own, minlength=len(state.idle))
            after = {requests[other].job for other in held_by[gpus].tolist() if other >= 0}
            if ended:
                after.add(requests[ended[0]].job)
            held_by[gpus] = number
            running[number] = _Running(state.now_s, gpus, tuple(sorted(after)), request.iterations, state.now_s)
            retime(law.starts(number, request, list(dict.fromkeys(own.tolist()))))
            if state.ends_s[number] > until_s and law.contention(number) <= 1:
                return None  # contention only adds to it
        while ending and (ending[0][1] not in running or running[ending[0][1]].version != ending[0][2]):
            heapq.heappop(ending)
        if len(done) == len(requests):
            break
        following = min(ending[0][0] if ending else math.inf, arrivals[-1][0] if arrivals else math.inf)
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

    def policy(state: State) -> Iterator[Start]:
        for number in sorted(state.waiting):
            start = starts[number]
            ended = isinstance(start, At) or all(number_of[job] in state.done for job in start.jobs)
            if ended and state.free[gpus[number]].all():
                yield number, gpus[number]

    return [
        replace(request, arrives_s=max(request.arrives_s, start.s)) if isinstance(start, At) else request
        for request, start in zip(requests, starts, strict=True)
    ], policy


def measure(ran: Sequence[Ran], servers: Servers) -> Metrics:
    """The usual numbers of a schedule."""
    makespan = max(one.end_s for one in ran)
    completion = [one.end_s - one.request.arrives_s for one in ran]
    held = sum(one.request.gpus * (one.end_s - one.start_s) for one in ran)
    return Metrics(
        makespan,
        float(np.mean(completion)),
        float(np.percentile(completion, 95)),
        float(np.mean([one.start_s - one.request.arrives_s for one in ran])),
        held / (len(servers.gpus) * makespan) if makespan else 0.0,
        max(one.contention for one in ran),
    )

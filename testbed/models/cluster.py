"""A cluster as an event loop: jobs arrive, get GPUs, run, end, and free them. Scheduling itself takes no simulated time.

At every arrival and end, a policy selects which job starts where. A law gives the speed of active jobs
(`testbed.models.contention` for equation 8; `testbed.models.cluster_flow_simulator` has the same events with flows).
Between events speeds are constant, so that ends are exact. Ties go by job number. A policy may also stop a job, which
continues from its progress once it gets GPUs again.
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

from testbed.core import progress
from testbed.core.placing import After, Assignment, Assignments, At, Gpu, Request, Stint

Numbers = npt.NDArray[np.int64]
Start = tuple[int, Numbers]  # the number of a request, and of its GPUs, by rank


@dataclass(frozen=True)
class Stop:
    """A running job gives its GPUs back; when it gets some again it first needs ``restart_s`` to go on."""

    number: int
    restart_s: float = 0.0


@dataclass(frozen=True)
class Wake:
    """A request of the policy to be called at time ``at_s``, too."""

    at_s: float


class Law(Protocol):
    """The speed of active jobs. Jobs and servers are numbered."""

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
    members: tuple[Numbers, ...] = field(init=False, repr=False, compare=False)  # the GPUs of each server, ascending
    _room: Numbers = field(init=False, repr=False, compare=False)  # GPUs of the largest server, of the largest two, …

    def __post_init__(self) -> None:
        hosts = {host: number for number, host in enumerate(dict.fromkeys(gpu.host for gpu in self.gpus))}
        object.__setattr__(self, "of", np.array([hosts[gpu.host] for gpu in self.gpus], dtype=np.int64))
        object.__setattr__(self, "sizes", np.bincount(self.of, minlength=len(hosts)).astype(np.int64))
        by_server = np.argsort(self.of, kind="stable")
        object.__setattr__(self, "members", tuple(np.split(by_server, np.cumsum(self.sizes)[:-1])) if hosts else ())
        object.__setattr__(self, "_room", np.cumsum(np.sort(self.sizes)[::-1]))

    def fewest(self, gpus: int) -> int:
        """Return the smallest number of servers with ``gpus`` GPUs."""
        return int(self._room.searchsorted(gpus) + 1)


@dataclass
class _Running:
    start_s: float
    gpus: Numbers
    after: tuple[int, ...]
    left: float  # iterations
    since_s: float  # start of its progress on these GPUs: later than now during a restart
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
    """The state of a job between its stints."""

    left: float
    restart_s: float
    most: int
    contention_s: float
    stints: tuple[Stint, ...]
    after: tuple[int, ...]


@dataclass(frozen=True)
class Ran:
    """The outcome of a job; times in seconds."""

    request: Request
    gpus: tuple[Gpu, ...]
    start_s: float
    end_s: float
    contention: int  # largest p during its time
    after: tuple[int, ...]  # number of job ends at which it could have started
    mean_contention: float = 0.0  # p over the time that it held GPUs
    stints: tuple[Stint, ...] = ()  # all of them; none: it ran through, or never got GPUs
    done: bool = True  # else it failed or left, or the schedule was cut off: at `end_s`

    @property
    def held(self) -> tuple[Stint, ...]:
        """Return the times at which it held GPUs; empty if it never got any."""
        if self.stints or not self.done:
            return self.stints
        return (Stint(self.gpus, self.start_s, self.end_s, self.request.iterations),)


@dataclass
class State:
    """The state of the cluster, which a policy may read but not change."""

    servers: Servers
    requests: Sequence[Request]
    now_s: float
    arrived: list[int]  # numbers of the requests that came at this moment
    waiting: dict[int, None]  # of those that have not started, in the order of arrival
    free: npt.NDArray[np.bool_]  # by GPU
    idle: Numbers  # free GPUs, by server
    ends_s: dict[int, float]  # expected end of each running job, by number
    done: dict[int, Ran]
    ended: list[int] = field(default_factory=list)  # numbers of the requests that ended at this moment
    room: int = field(init=False)  # free GPUs in all

    def __post_init__(self) -> None:
        self.room = int(self.idle.sum())

    def take(self, gpus: Numbers) -> Numbers:
        """Mark GPUs as held; the server of each."""
        own: Numbers = self.servers.of[gpus]
        self.free[gpus] = False
        self.idle -= np.bincount(own, minlength=len(self.idle))
        self.room -= len(gpus)
        return own

    def give_back(self, gpus: Numbers) -> None:
        """Mark GPUs as free."""
        self.free[gpus] = True
        self.idle += np.bincount(self.servers.of[gpus], minlength=len(self.idle))
        self.room += len(gpus)


Policy = Callable[[State], Iterator[Start | Stop | Wake]]  # each takes effect before the next one is requested


def simulate(
    requests: Sequence[Request], servers: Servers, policy: Policy, law: Law, *, slot_s: float = 0.0, until_s: float = math.inf
) -> tuple[Ran, ...] | None:  # fmt: skip
    """Return every job from arrival to end, in the order of the requests.

    None if it does not end: the policy starts no job although none runs or is still to arrive, or a job is certain to
    end after ``until_s``. With ``slot_s``, all events are at the start of a slot.
    """
    loop = _Loop(requests, servers, law, slot_s)
    done = loop.state.done
    while len(done) < len(requests):
        if not loop.moment(policy, until_s):
            return None
        loop.progress(len(done))
        if len(done) < len(requests):
            following = loop.following()
            if following > until_s or following == math.inf:
                return None
            loop.state.now_s = max(loop.state.now_s, following)
    return tuple(done[number] for number in range(len(requests)))


def slotted(s: float, slot_s: float) -> float:
    """The first beginning of a slot from ``s`` on; without slots ``s`` itself."""
    return math.ceil(s / slot_s - 1e-9) * slot_s if slot_s else s


class _Loop:
    """The state of a simulation."""

    def __init__(self, requests: Sequence[Request], servers: Servers, law: Law, slot_s: float) -> None:
        self.law, self.slot_s = law, slot_s
        self.progress = progress.counter(len(requests))
        free = np.ones(len(servers.gpus), dtype=bool)
        self.state = State(servers, requests, 0.0, [], {}, free, servers.sizes.copy(), {}, {})
        self.arrivals = sorted((self.slotted(job.arrival_s), number) for number, job in enumerate(requests))[::-1]
        self.held_by = np.full(len(servers.gpus), -1, dtype=np.int64)
        self.running: dict[int, _Running] = {}
        self.stopped: dict[int, _Stopped] = {}
        self.ending: list[tuple[float, int, int]] = []
        self.wakes: list[float] = []
        self.versions = itertools.count(1)

    def slotted(self, s: float) -> float:
        return slotted(s, self.slot_s)

    def moment(self, policy: Policy, until_s: float) -> bool:
        """Handle the events at this time; False if a job that starts is certain to end after ``until_s``."""
        state = self.state
        ended = self._end_due()
        while self.wakes and self.wakes[0] <= state.now_s:
            heapq.heappop(self.wakes)
        state.arrived = []
        while self.arrivals and self.arrivals[-1][0] <= state.now_s:
            state.arrived.append(self.arrivals.pop()[1])
        state.waiting.update(dict.fromkeys(state.arrived))
        for action in policy(state):
            if isinstance(action, Wake):
                if action.at_s > state.now_s:
                    heapq.heappush(self.wakes, self.slotted(action.at_s))
            elif isinstance(action, Stop):
                self._stop(action)
            else:
                self._start(*action, ended[:1])
                if state.ends_s[action[0]] > until_s and self.law.contention(action[0]) <= 1:
                    return False  # contention only adds to it
        return True

    def following(self) -> float:
        """When something happens next; infinity: never."""
        while self.ending and not self._holds(self.ending[0]):
            heapq.heappop(self.ending)
        return min(
            self.ending[0][0] if self.ending else math.inf,
            self.arrivals[-1][0] if self.arrivals else math.inf,
            self.wakes[0] if self.wakes else math.inf,
        )

    def _holds(self, foreseen: tuple[float, int, int]) -> bool:
        """Return True if this predicted end is still valid."""
        _, number, version = foreseen
        return number in self.running and self.running[number].version == version

    def _end_due(self) -> list[int]:
        """End the jobs that are due; their job numbers."""
        ended = []
        while self.ending and self.ending[0][0] <= self.state.now_s:
            foreseen = heapq.heappop(self.ending)
            if self._holds(foreseen):
                end_s, number, _ = foreseen
                self._end(number, end_s)
                ended.append(number)
        self.state.ended = ended
        return [self.state.requests[number].job for number in ended]

    def _retime(self, numbers: Iterable[int]) -> None:
        """The progress of these jobs, and their end at the present speeds."""
        now_s = self.state.now_s
        for number in numbers:
            job = self.running[number]
            if job.iteration_s:
                job.left = max(0.0, job.left - max(0.0, now_s - job.since_s) / job.iteration_s)
            job.since_s, job.iteration_s = max(job.since_s, now_s), self.law.iteration_s(number)
            job.contention_s += job.contention * (now_s - job.seen_s)
            job.seen_s, job.contention = now_s, self.law.contention(number)
            job.most = max(job.most, job.contention)
            job.version = next(self.versions)
            end_s = self.slotted(job.since_s + job.left * job.iteration_s)
            self.state.ends_s[number] = end_s
            heapq.heappush(self.ending, (end_s, number, job.version))

    def _start(self, number: int, gpus: Numbers, ended: Sequence[int]) -> None:
        state, request = self.state, self.state.requests[number]
        del state.waiting[number]
        if len(gpus) != request.gpus or not state.free[gpus].all() or len(set(gpus.tolist())) != len(gpus):
            raise AssertionError(f"job {request.job} was given GPUs that it cannot have: {gpus}")
        own = state.take(gpus)
        after = {*ended, *(state.requests[other].job for other in self.held_by[gpus].tolist() if other >= 0)}
        self.held_by[gpus] = number
        before = self.stopped.get(number) or _Stopped(request.iterations, 0.0, 0, 0.0, (), tuple(sorted(after)))
        self.running[number] = _Running(
            state.now_s, gpus, before.after, before.left, state.now_s + before.restart_s, before.restart_s, before.left,
            most=before.most, seen_s=state.now_s, contention_s=before.contention_s,
        )  # fmt: skip
        self._retime(self.law.starts(number, request, list(dict.fromkeys(own.tolist()))))

    def _stop(self, action: Stop) -> None:
        number, before = action.number, self.stopped.get(action.number)
        self._retime([number])
        job = self._freed(number)
        stint = self._stint(job, self.state.now_s, job.began_with - job.left)
        stints = (stint,) if before is None else (*before.stints, stint)
        self.stopped[number] = _Stopped(job.left, action.restart_s, job.most, job.contention_s, stints, job.after)
        self.state.waiting[number] = None
        self._retime(self.law.ends(number))

    def _end(self, number: int, end_s: float) -> None:
        job, before = self._freed(number), self.stopped.pop(number, None)
        last = self._stint(job, end_s, job.began_with)
        stints = (last,) if before is None else (*before.stints, last)
        held_s = sum(stint.end_s - stint.start_s for stint in stints)
        self.state.done[number] = Ran(
            self.state.requests[number], last.gpus, stints[0].start_s, end_s, job.most, job.after,
            job.contention_s / held_s if held_s else 0.0, stints if before is not None else (),
        )  # fmt: skip
        self._retime(self.law.ends(number))

    def _freed(self, number: int) -> _Running:
        """A job whose GPUs are free again."""
        state, job = self.state, self.running.pop(number)
        del state.ends_s[number]
        state.give_back(job.gpus)
        job.contention_s += job.contention * (state.now_s - job.seen_s)
        return job

    def _stint(self, job: _Running, end_s: float, iterations: float) -> Stint:
        every = self.state.servers.gpus
        gpus = tuple([every[gpu] for gpu in job.gpus.tolist()])
        return Stint(gpus, job.start_s, end_s, iterations, job.restart_s)


def assignments(ran: Sequence[Ran], trials: int = 1) -> Assignments:
    """Return the schedule of a scheduler that has simulated it: under the same law the result is the same.

    If jobs were stopped in between, all start times are fixed, because the job that freed GPUs had not ended.
    """
    stopped = any(job.stints for job in ran)
    return Assignments(
        tuple(
            Assignment(
                job.request.job,
                job.gpus,
                After(job.after) if job.after and not stopped else At(job.start_s),
                job.end_s - job.start_s,
                job.held if stopped else (),
            )
            for job in ran
        ),
        trials,
    )


def follow(assigned: Assignments, requests: Sequence[Request], servers: Servers) -> tuple[list[Request], Policy]:
    """The requests and the policy that realize a schedule; a job that starts `At` a time arrives no earlier."""
    numbers = {gpu: number for number, gpu in enumerate(servers.gpus)}
    given = {job.job: job for job in assigned.jobs}
    own = [given[request.job] for request in requests]
    stints = any(one.stints for one in own)
    return [
        replace(request, arrival_s=max(request.arrival_s, one.start.s)) if isinstance(one.start, At) else request
        for request, one in zip(requests, own, strict=True)
    ], (_Stints(own, numbers) if stints else _Starts(requests, own, numbers))


class _Starts:
    """The policy of a schedule without stops: each job is considered only when it may be able to start."""

    def __init__(self, requests: Sequence[Request], own: Sequence[Assignment], numbers: dict[Gpu, int]) -> None:
        self._gpus = [np.array([numbers[gpu] for gpu in one.gpus], dtype=np.int64) for one in own]
        number_of = {request.job: number for number, request in enumerate(requests)}
        self._missing = [0] * len(own)  # jobs of which the end is waited for
        self._next: dict[int, list[int]] = {}  # by job: those that wait for its end
        for number, assigned in enumerate(own):
            start = assigned.start
            before = set() if isinstance(start, At) else {number_of[job] for job in start.jobs}
            self._missing[number] = len(before)
            for other in before:
                self._next.setdefault(other, []).append(number)
        self._ready = [not count for count in self._missing]
        self._held: set[int] = set()  # ready, arrived, and its GPUs were not free

    def __call__(self, state: State) -> Iterator[Start]:
        candidates = {number for number in state.arrived if self._ready[number]}
        for ended in state.ended:
            for number in self._next.pop(ended, ()):
                self._missing[number] -= 1
                if not self._missing[number]:
                    self._ready[number] = True
                    if number in state.waiting:
                        candidates.add(number)
        if self._held and state.ended:
            candidates |= self._held
        for number in sorted(candidates):
            if state.free[self._gpus[number]].all():
                self._held.discard(number)
                yield number, self._gpus[number]
            else:
                self._held.add(number)


class _Stints:
    """The policy of a schedule whose jobs are stopped in between, with fixed times."""

    def __init__(self, own: Sequence[Assignment], numbers: dict[Gpu, int]) -> None:
        self._stints = [list(one.stints)[::-1] for one in own]  # the next one last
        self._numbers = numbers
        self._stops: list[tuple[float, int]] = []  # running jobs that continue later
        self._starts: list[tuple[float, int]] = []  # of those that wait
        self._held: set[int] = set()  # due, and the GPUs were not free

    def __call__(self, state: State) -> Iterator[Start | Stop | Wake]:
        stopped = list[int]()
        while self._stops and self._stops[0][0] <= state.now_s:
            stopped.append(heapq.heappop(self._stops)[1])
        for number in sorted(stopped):
            if number in state.ends_s:
                self._stints[number].pop()
                following = self._stints[number][-1]
                yield Stop(number, following.restart_s)
                yield from self._wait(number, state)
        for number in state.arrived:
            yield from self._wait(number, state)
        while self._starts and self._starts[0][0] <= state.now_s:
            self._held.add(heapq.heappop(self._starts)[1])
        for number in sorted(self._held):
            following = self._stints[number][-1]
            on = np.array([self._numbers[gpu] for gpu in following.gpus], dtype=np.int64)
            if state.free[on].all():
                self._held.discard(number)
                yield number, on
                if len(self._stints[number]) > 1:
                    heapq.heappush(self._stops, (following.end_s, number))
                    yield Wake(following.end_s)

    def _wait(self, number: int, state: State) -> Iterator[Wake]:
        """Until its next stint begins."""
        at_s = self._stints[number][-1].start_s
        heapq.heappush(self._starts, (at_s, number))
        if at_s > state.now_s:
            yield Wake(at_s)

"""The flow-level simulator: jobs on a network as an event loop, without packets. Between events every flow has a constant rate.

An iteration of a job is a graph of nodes: timers (computing), flows (a round of a collective on one path, or a complete
ring in lockstep) and their order. Rates are max-min fair by weights (`testbed.models.maxmin`). The weight of a flow
depends on the fraction r of its iteration's bytes that it has sent, in steps (`Force`), times a random factor for each
iteration: fair sharing is only neutrally stable, and random loss cycles move jobs apart. Windows, queues, losses and
round trips are not modelled. Times are in seconds, sizes in bits.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeVar, cast

import numpy as np
import numpy.typing as npt

from testbed.models import maxmin
from testbed.models.compiled import compiled, pace
from testbed.models.maxmin import Floats, Ints, Network
from testbed.models.weight_function import EQUAL, Force

NOWHERE = -1
TIE_S = 1e-12  # events within this time, in seconds, are simultaneous
DONE = 1e-9  # fraction of a flow's bits that counts as none
ROOM = 1 << 16  # records between two looks
SLICE = 2000  # events and flows processed, after which interpreted loops check the clock


@dataclass(frozen=True)
class Node:
    """A node of an iteration. A timer (``links`` is None) takes ``amount`` seconds; a flow sends so many bits."""

    amount: float
    after: tuple[int, ...] = ()  # of the same job's nodes
    links: tuple[int, ...] | None = None
    times: tuple[float, ...] | None = None  # on each link, load ÷ rate; None: 1
    begins_at: float = 0.0  # r at its beginning
    ends_at: float = 1.0  # and at its end
    flows: int = 1  # equal flows over the same links, which it stands for: its rate is that of each


@dataclass(frozen=True)
class FlowJob:
    """Iteration after iteration from ``start_s`` on."""

    nodes: tuple[Node, ...]
    start_s: float = 0.0
    force: Force = EQUAL
    mltcp_active_from: int = 0  # the first iteration with its force; before, weights are 1
    grid: tuple[float, float] | None = None  # period and phase of the slots that iterations begin on
    tolerated: float = 0.05  # drift ÷ period that is none
    factors: Floats = field(default_factory=lambda: np.ones(1))  # factors of computing time, by iteration, repeated
    spread: float = 0.0  # standard deviation of the logarithm of weights, sampled for every flow and iteration
    # Frames of marking threshold for each flow on a link: up to the first all windows are at their minimum, and shares equal; from the
    # second on weights decide.
    windows: tuple[float, float] = (0.0, 0.0)


class Jobs(NamedTuple):
    """The state of jobs: arrays by node, by job, and records to be read."""

    # By node.
    flows: npt.NDArray[np.bool_]
    amount: Floats
    job: Ints
    needs: Ints  # how many nodes before it
    then_from: Ints
    then: Ints
    begins_at: Floats
    ends_at: Floats
    missing: Ints  # of the nodes before it
    left: Floats
    since: Floats
    step: Ints  # of the force
    begun: Floats
    stands_for: Ints  # equal flows
    force: Floats  # its weight, if all of its windows are free
    # By job.
    first: Ints  # of its nodes; one more than jobs
    pending: Ints  # nodes of this iteration
    iteration: Ints
    started: Floats
    sends_from: Floats
    runs: npt.NDArray[np.bool_]
    mltcp_active_from: Ints
    period: Floats  # of its grid; 0: none
    phase: Floats
    tolerated: Floats
    placed: npt.NDArray[np.bool_]
    bounds: Floats  # [job, step]
    weights: Floats
    factors: Floats  # [job, iteration modulo their number]
    chance: Floats  # [node, iteration modulo their number]
    min_window: Floats  # frames of window for each flow, up to which weights have no effect
    free_window: Floats  # and from which they decide all; 0: always
    # Clocks, of nodes and then of jobs, as a heap.
    due: Floats
    heap: Ints
    place: Ints
    # Links.
    carried: Floats
    carried_since: Floats
    threshold: Floats  # frames of queue from which a link marks; infinity: windows are never small
    flows_on: Ints  # active flows
    crowded: npt.NDArray[np.bool_]  # whether that number has changed since rates were computed
    changed: Ints  # those links: as many as ``counts[6]``
    # Records.
    ended: Floats  # iterations: job, iteration, start, start of sending, end
    sent: Floats  # flows: node, iteration, start, end
    keep: npt.NDArray[np.bool_]  # whether flows are recorded
    counts: Ints  # of clocks, of iterations, of flows, of events, of jobs that have ended since the last look; 1: the slice is over; of crowded links
    wanted: Ints  # iterations after which a job ends
    batch: Floats  # rates are computed at multiples of it; 0: at every event
    share_at: Floats  # the next computation of rates; infinity: none is due


Arrays = TypeVar("Arrays", Network, Jobs)
DRAWS = 256


def jobs(asked: Sequence[FlowJob], *, keep: bool = True, seed: int = 0, batch_s: float = 0.0) -> Jobs:
    """Jobs that have not begun; `begin` sets their clocks. ``keep``: every flow is recorded, too."""
    nodes = [node for job in asked for node in job.nodes]

    def ints(values: Sequence[int]) -> Ints:
        return np.array(values, dtype=np.int64)

    first = np.concatenate([[0], np.cumsum([len(job.nodes) for job in asked])]).astype(np.int64)
    count, clocks = len(nodes), len(nodes) + len(asked)
    then: list[list[int]] = [[] for _ in nodes]
    for number, job in enumerate(asked):
        for at, node in enumerate(job.nodes):
            for before in node.after:
                then[first[number] + before].append(int(first[number]) + at)
    steps = max(len(job.force.bounds) for job in asked)
    draw = np.random.default_rng(seed)
    of = np.repeat(np.arange(len(asked), dtype=np.int64), np.diff(first))
    stands_for = ints([node.flows for node in nodes])
    # The mean of n draws varies by 1/√n of what one does.
    spread = np.array([job.spread for job in asked])[of] / np.sqrt(stands_for)
    chance = np.exp(spread[:, None] * draw.standard_normal((count, DRAWS))) if spread.any() else np.ones((count, 1))
    factors = np.ones((len(asked), max(len(job.factors) for job in asked)))
    for number, job in enumerate(asked):
        factors[number] = np.resize(job.factors, factors.shape[1])

    def filled(values: Sequence[float]) -> list[float]:
        return [*values, *[values[-1]] * (steps - len(values))]

    def floats(values: Sequence[float]) -> Floats:
        return np.array(values, dtype=np.float64)

    return Jobs(
        np.array([node.links is not None for node in nodes], dtype=np.bool_), floats([node.amount for node in nodes]), of,
        ints([len(node.after) for node in nodes]), np.concatenate([[0], np.cumsum([len(one) for one in then])]).astype(np.int64),
        ints([one for some in then for one in some]), floats([node.begins_at for node in nodes]),
        floats([node.ends_at for node in nodes]), np.zeros(count, np.int64), np.zeros(count), np.zeros(count), np.zeros(count, np.int64),
        np.zeros(count), stands_for, np.ones(count),
        first, np.zeros(len(asked), np.int64), np.zeros(len(asked), np.int64), np.zeros(len(asked)), np.full(len(asked), -1.0),
        np.zeros(len(asked), np.bool_), ints([job.mltcp_active_from for job in asked]), floats([job.grid[0] if job.grid else 0.0 for job in asked]),
        floats([job.grid[1] if job.grid else 0.0 for job in asked]), floats([job.tolerated for job in asked]), np.zeros(len(asked), np.bool_),
        np.array([filled(job.force.bounds) for job in asked]),
        np.array([filled(job.force.weights) for job in asked]),
        factors, chance, floats([job.windows[0] for job in asked]), floats([job.windows[1] for job in asked]),
        np.full(clocks, np.inf), np.full(clocks, NOWHERE, dtype=np.int64), np.full(clocks, NOWHERE, dtype=np.int64),
        np.zeros(0), np.zeros(0), np.zeros(0), np.zeros(0, np.int64), np.zeros(0, np.bool_), np.zeros(0, np.int64),
        np.zeros((ROOM, 5)), np.zeros((ROOM if keep else 1, 4)), np.array([keep]), np.zeros(7, np.int64),
        np.full(len(asked), np.iinfo(np.int64).max), np.array([batch_s]), np.array([np.inf]),
    )  # fmt: skip


@dataclass(frozen=True)
class Ended:
    """An iteration of a job."""

    job: int
    iteration: int
    start_s: float
    comm_start_s: float  # equal to its end if it sends nothing
    end_s: float


@dataclass(frozen=True)
class Sent:
    """A flow of an iteration: number of its node among all."""

    node: int
    iteration: int
    start_s: float
    end_s: float


class Loop:
    """Jobs on a network, and their progress. They begin when it is created, or, with ``wait``, at a call of `begin`."""

    def __init__(
        self, asked: Sequence[FlowJob], capacity: npt.ArrayLike, *, seed: int = 0, keep: bool = True, wait: bool = False,
        places: npt.ArrayLike | None = None, batch_s: float = 0.0, threshold: npt.ArrayLike = np.inf, say: Callable[[str], None] = lambda _: None,
    ) -> None:  # fmt: skip
        """Prepare the simulation of jobs ``asked`` on links of ``capacity`` bit/s.

        ``threshold``: queue length, in frames, from which each link marks. ``say`` is called before the loops are
        compiled, which takes long. ``places``: maximum number of links that a node crosses, if it is placed later.

        ``batch_s``: in a large network with frequent events, rates are computed only at multiples of it. A flow that
        begins in between sends at the rate of the next multiple from its start; a flow that ends leaves its share
        unused until there. Bytes of links are not counted.
        """
        nodes = [node for job in asked for node in job.nodes]
        room = [len(node.links or ()) for node in nodes] if places is None else places
        self.net = maxmin.network(capacity, room)
        for number, node in enumerate(nodes):
            if node.links:
                maxmin.put(self.net, number, node.links, 1.0 if node.times is None else node.times)
        links = len(self.net.capacity)
        self.state = jobs(asked, keep=keep, seed=seed, batch_s=batch_s)._replace(
            carried=np.zeros(links), carried_since=np.zeros(links), flows_on=np.zeros(links, np.int64),
            crowded=np.zeros(links, np.bool_), changed=np.zeros(links, np.int64),
            threshold=np.broadcast_to(np.asarray(threshold, dtype=float), links).copy(),
        )  # fmt: skip
        self.now_s, self.say = 0.0, say
        if not wait:
            for number, job in enumerate(asked):
                self.begin(number, job.start_s)

    def begin(self, job: int, at_s: float) -> None:
        """The job's first iteration begins then, or on the first slot of its grid."""
        self.state.runs[job] = True
        begin(self.state, job, at_s)

    def stop(self, job: int) -> None:
        """The job is gone, in the middle of an iteration."""
        stop(self.net, self.state, job, self.now_s)

    def change(self, link: int, capacity: float) -> None:
        """A link is so fast from now on."""
        change(self.net, self.state, link, capacity, self.now_s)

    def advance(self, until_s: float) -> None:
        """Simulate up to ``until_s``, or until the records are full (`taken`); to be repeated until `now_s` has
        reached it."""
        while pace.interpreted:
            begun = time.thread_time()
            reached = float(advance(_views(self.net), _views(self.state), until_s, SLICE))
            pace.spent(time.thread_time() - begun, self.say)
            if self.state.counts[5] == 0:
                self.now_s = reached
                return
        self.now_s = float(advance(self.net, self.state, until_s, 0))

    def run(self, until_s: float) -> Iterator[tuple[list[Ended], list[Sent]]]:
        """Simulate up to ``until_s``, and yield ended iterations and sent flows piece by piece."""
        while self.now_s < until_s:
            self.advance(until_s)
            yield self.taken()

    def ended_jobs(self) -> bool:
        """Return True if a job has ended since the last call (`advance` stops there)."""
        found = self.state.counts[4] > 0
        self.state.counts[4] = 0
        return bool(found)

    def taken(self) -> tuple[list[Ended], list[Sent]]:
        """The nodes that have ended since the last call."""
        ended, sent = self.rows()
        return (
            [Ended(int(row[0]), int(row[1]), *map(float, row[2:])) for row in ended],
            [Sent(int(row[0]), int(row[1]), *map(float, row[2:])) for row in sent],
        )

    def rows(self) -> tuple[Floats, Floats]:
        """Return ended iterations and sent flows as arrays: columns as in `Ended` and `Sent`."""
        counts = self.state.counts
        ended, sent = self.state.ended[: counts[1]].copy(), self.state.sent[: counts[2]].copy()
        counts[1] = counts[2] = 0
        return ended, sent

    @property
    def following_s(self) -> float:
        """Return the time of the next event in seconds; infinity: none."""
        return float(self.state.due[self.state.heap[0]]) if self.state.counts[0] else np.inf

    @property
    def carried_bits(self) -> Floats:
        """Over each link up to now."""
        return self.state.carried + self.net.load * (self.now_s - self.state.carried_since)

    @property
    def left_bits(self) -> Floats:
        """The rate of each active node at present; else 0."""
        there = self.net.active
        return np.where(there, np.maximum(self.state.left - self.net.rate * (self.now_s - self.state.since), 0.0), 0.0)


def _views(arrays: Arrays) -> Arrays:
    """The same memory. Interpreted loops read and write an element of a view in a third of the time of an array's."""
    views: Any = [memoryview(cast(Any, each)) for each in arrays]
    return type(arrays)(*views)


@compiled
def advance(net: Network, state: Jobs, until_s: float, most: int) -> float:
    """Process all events up to ``until_s``; return the reached time, which is earlier if the records are full.

    After ``most`` events and examined flows (0: any number) it returns early and sets ``counts[5]``: it must
    be called again.
    """
    counts = state.counts
    room = len(state.ended) - 64, len(state.sent) - 4096
    work = 0
    counts[5] = 0
    while True:
        if 0 < most <= work:
            counts[5] = 1
            return until_s
        following = state.due[state.heap[0]] if counts[0] > 0 else np.inf
        if state.share_at[0] <= min(following, until_s):
            _share_all(net, state)
            work += len(net.active)
            continue
        if following > until_s:
            return until_s
        if counts[1] >= room[0] or (state.keep[0] and counts[2] >= room[1]):
            return float(state.due[state.heap[0]]) - TIE_S
        now = state.due[state.heap[0]]
        while counts[0] > 0 and state.due[state.heap[0]] <= now + TIE_S:
            clock = state.heap[0]
            _set(state, clock, np.inf)
            counts[3] += 1
            work += 1
            if clock >= len(state.amount):
                _start(net, state, clock - len(state.amount), now)
            elif not net.active[clock]:
                _complete(net, state, clock, now)
            else:
                _on_its_way(net, state, clock, now)
        work += net.counts[0]
        _share(net, state, now)
        if counts[4] > 0:
            return float(now)


@compiled
def begin(state: Jobs, job: int, at_s: float) -> None:
    """Begin the next iteration of a job at ``at_s``, or at the next slot of its grid (`testbed.core.grid`)."""
    period = state.period[job]
    if period > 0:
        past = (at_s - state.phase[job]) % period
        drift = past if 2 * past <= period else past - period
        if not state.placed[job] or abs(drift) > state.tolerated[job] * period:
            at_s += (period - past) % period
        state.placed[job] = True
    _set(state, len(state.amount) + job, at_s)


@compiled
def stop(net: Network, state: Jobs, job: int, now: float) -> None:
    """The flow leaves the network."""
    state.runs[job] = False
    _set(state, len(state.amount) + job, np.inf)
    for node in range(state.first[job], state.first[job + 1]):
        _set(state, node, np.inf)
        if net.active[node]:
            _account(net, state, node, now)
            _leave(net, state, node)
    _share(net, state, now)


@compiled
def change(net: Network, state: Jobs, link: int, capacity: float, now: float) -> None:
    """A link's capacity changes; the flows that cross it are considered."""
    net.capacity[link] = capacity
    place = net.head[link]
    while place != NOWHERE:
        maxmin.choose(net, net.owner[place])
        place = net.following[place]
    _share(net, state, now)


@compiled
def _start(net: Network, state: Jobs, job: int, now: float) -> None:
    if not state.runs[job]:
        return
    state.started[job] = now
    state.sends_from[job] = -1.0
    begins, ends = state.first[job], state.first[job + 1]
    state.pending[job] = ends - begins
    for node in range(begins, ends):
        state.missing[node] = state.needs[node]
    for node in range(begins, ends):
        if state.needs[node] == 0:
            _begin(net, state, node, now)


@compiled
def _begin(net: Network, state: Jobs, node: int, now: float) -> None:
    job = state.job[node]
    state.begun[node] = now
    if not state.flows[node]:
        factor = state.factors[job, state.iteration[job] % state.factors.shape[1]]
        _set(state, node, now + state.amount[node] * factor)
        return
    if state.sends_from[job] < 0:
        state.sends_from[job] = now
    if net.crossed[node] == 0:  # inside a host: as fast as memory
        _set(state, node, now)
        return
    state.left[node] = state.amount[node]
    state.since[node] = now
    state.step[node] = 0
    ratio = state.begins_at[node]
    while state.step[node] < state.bounds.shape[1] - 1 and state.bounds[job, state.step[node]] <= ratio:
        state.step[node] += 1
    maxmin.enter(net, node)
    _crowd(net, state, node, 1)
    _weigh(net, state, node)
    maxmin.choose(net, node)


@compiled
def _weigh(net: Network, state: Jobs, node: int) -> None:
    job = state.job[node]
    iteration = state.iteration[job]
    force = state.weights[job, state.step[node]] if iteration >= state.mltcp_active_from[job] else 1.0
    state.force[node] = force * state.chance[node, iteration % state.chance.shape[1]]
    net.weight[node] = _weight(net, state, node)


@compiled
def _weight(net: Network, state: Jobs, node: int) -> float:
    """Its force. On a link with few frames for each flow a part of its share is the same for all: 1 if windows are at their minimum there."""
    free = state.free_window[state.job[node]]
    if free <= 0:
        return float(state.force[node])
    frames = free
    for place in range(net.first[node], net.first[node] + net.crossed[node]):
        link = net.over[place]
        if state.threshold[link] < frames * state.flows_on[link]:
            frames = state.threshold[link] / state.flows_on[link]
    if frames >= free:
        return float(state.force[node])
    least = state.min_window[state.job[node]]
    equal = 1.0 if frames <= least else (free - frames) / (free - least)
    return float(equal + (1.0 - equal) * state.force[node])


@compiled
def _crowd(net: Network, state: Jobs, node: int, more: int) -> None:
    """So many more flows are on its links."""
    for place in range(net.first[node], net.first[node] + net.crossed[node]):
        link = net.over[place]
        state.flows_on[link] += more * state.stands_for[node]
        if not state.crowded[link] and state.threshold[link] < np.inf and state.batch[0] <= 0:
            state.crowded[link] = True
            state.changed[state.counts[6]] = link
            state.counts[6] += 1


@compiled
def _weigh_crowded(net: Network, state: Jobs) -> None:
    """New weights of flows on links whose number of flows has changed."""
    for number in range(state.counts[6]):
        link = state.changed[number]
        state.crowded[link] = False
        place = net.head[link]
        while place != NOWHERE:
            node = net.owner[place]
            weight = _weight(net, state, node)
            if weight != net.weight[node]:
                net.weight[node] = weight
                maxmin.choose(net, node)
            place = net.following[place]
    state.counts[6] = 0


@compiled
def _leave(net: Network, state: Jobs, node: int) -> None:
    """The node is no longer active."""
    maxmin.leave(net, node)
    _crowd(net, state, node, -1)


@compiled
def _account(net: Network, state: Jobs, node: int, now: float) -> None:
    """Update the bits that it has sent, and the bits of its links."""
    if state.batch[0] > 0 and net.rate[node] == 0:
        return  # it has begun in this batch
    state.left[node] -= net.rate[node] * (now - state.since[node])
    state.since[node] = now
    if state.batch[0] > 0:
        return
    for place in range(net.first[node], net.first[node] + net.crossed[node]):
        link = net.over[place]
        state.carried[link] += net.load[link] * (now - state.carried_since[link])
        state.carried_since[link] = now


@compiled
def _on_its_way(net: Network, state: Jobs, node: int, now: float) -> None:
    """A flow has ended, or reaches the next step of its weight function."""
    _account(net, state, node, now)
    # The clock of a flow without a further step was set for its end. The rest is then a rounding error, which may be
    # large relative to a small flow: a float of seconds resolves only 4e-16 s.
    if state.left[node] <= DONE * state.amount[node] or _after(state, node) == 0:
        _leave(net, state, node)
        _complete(net, state, node, now)
        return
    state.step[node] += 1
    _weigh(net, state, node)
    maxmin.choose(net, node)


@compiled
def _complete(net: Network, state: Jobs, node: int, now: float) -> None:
    job = state.job[node]
    if state.flows[node] and state.keep[0]:
        row = state.counts[2]
        state.sent[row, 0] = node
        state.sent[row, 1] = state.iteration[job]
        state.sent[row, 2] = state.begun[node]
        state.sent[row, 3] = now
        state.counts[2] += 1
    for at in range(state.then_from[node], state.then_from[node + 1]):
        following = state.then[at]
        state.missing[following] -= 1
        if state.missing[following] == 0:
            _begin(net, state, following, now)
    state.pending[job] -= 1
    if state.pending[job] == 0:
        row = state.counts[1]
        state.ended[row, 0] = job
        state.ended[row, 1] = state.iteration[job]
        state.ended[row, 2] = state.started[job]
        state.ended[row, 3] = state.sends_from[job] if state.sends_from[job] >= 0 else now
        state.ended[row, 4] = now
        state.counts[1] += 1
        state.iteration[job] += 1
        if state.iteration[job] >= state.wanted[job]:
            state.runs[job] = False
            state.counts[4] += 1
        else:
            begin(state, job, now)


@compiled
def _share(net: Network, state: Jobs, now: float) -> None:
    """New rates and clocks for the affected flows."""
    if state.batch[0] > 0:
        maxmin.forget(net)
        state.share_at[0] = min(state.share_at[0], (np.floor(now / state.batch[0]) + 1) * state.batch[0])
        return
    _weigh_crowded(net, state)
    if net.counts[0] == 0:
        return
    maxmin.solve(net)
    for number in range(net.counts[0]):
        node = net.flows[number]
        if net.active[node]:
            changed = net.fresh[node] != net.rate[node]
            if changed:
                _account(net, state, node, now)
                maxmin.settle(net, node)
            net.level[node] = net.rate[node] / net.weight[node]
            if not changed and state.due[node] < np.inf:
                continue  # its clock is right
            _set(state, node, now + _until(net, state, node, now) if net.rate[node] > 0 else np.inf)
    maxmin.forget(net)


@compiled
def _share_all(net: Network, state: Jobs) -> None:
    """New rates for all flows, at the end of a batch; a flow that began within it has already sent at this rate."""
    now = state.share_at[0]
    state.share_at[0] = np.inf
    for node in range(len(net.active)):
        if net.active[node]:
            state.left[node] -= net.rate[node] * (now - state.since[node])
            state.since[node] = now if net.rate[node] > 0 else state.since[node]
    maxmin.solve_all(net)
    dues, heap, place, counts = state.due, state.heap, state.place, state.counts
    for number in range(net.counts[0]):
        node = net.flows[number]
        due = np.inf if net.rate[node] <= 0 else now + _until(net, state, node, now)
        _move(dues, heap, place, counts, node, due)
    maxmin.forget(net)


@compiled
def _until(net: Network, state: Jobs, node: int, now: float) -> float:
    """How long it takes to the next step of its force, or to its end."""
    left = state.left[node] - net.rate[node] * (now - state.since[node])
    return float(max(0.0, left - _after(state, node)) / net.rate[node])


@compiled
def _after(state: Jobs, node: int) -> float:
    """The bits that remain after this step of its weight function."""
    job, span = state.job[node], state.ends_at[node] - state.begins_at[node]
    if (
        state.step[node] < state.bounds.shape[1] - 1
        and span > 0
        and state.iteration[job] >= state.mltcp_active_from[job]
    ):
        bound = state.bounds[job, state.step[node]]
        if bound < state.ends_at[node]:
            return float(state.amount[node] * (state.ends_at[node] - bound) / span)
    return 0.0


@compiled
def _set(state: Jobs, clock: int, due: float) -> None:
    """Set a clock to go off at ``due`` seconds; infinity: never."""
    _move(state.due, state.heap, state.place, state.counts, clock, due)


@compiled
def _move(dues: Floats, heap: Ints, place: Ints, counts: Ints, clock: int, due: float) -> None:
    """Set a clock, given only its arrays: passing all arrays takes longer than the work. Ties go by number."""
    at = place[clock]
    dues[clock] = due
    if due == np.inf:
        if at == NOWHERE:
            return
        counts[0] -= 1
        last = heap[counts[0]]
        place[clock] = NOWHERE
        if last == clock:
            return
        clock, due = last, dues[last]
    elif at == NOWHERE:
        at = counts[0]
        counts[0] += 1
    # The clock moves up past later ones, or else down past earlier ones.
    while at > 0:
        above = heap[(at - 1) // 2]
        other = dues[above]
        if due > other or (due == other and clock > above):
            break
        heap[at] = above
        place[above] = at
        at = (at - 1) // 2
    size = counts[0]
    while 2 * at + 1 < size:
        child = 2 * at + 1
        least = heap[child]
        earliest = dues[least]
        if child + 1 < size:
            second = heap[child + 1]
            other = dues[second]
            if other < earliest or (other == earliest and second < least):
                child, least, earliest = child + 1, second, other
        if due < earliest or (due == earliest and clock < least):
            break
        heap[at] = least
        place[least] = at
        at = child
    heap[at] = clock
    place[clock] = at

"""A plan as the event loop of `testbed.models.flow_simulator` has it: links, paths, nodes of every job."""

from __future__ import annotations

import itertools
import math
import random
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np

from testbed import networks
from testbed.backends.flow import groups
from testbed.core.runs.plan import JobPlan, Link, Operation, Plan
from testbed.models import flow_weights
from testbed.models.flow_simulator import FlowJob, Loop, Node
from testbed.models.frames import frame, payload_share
from testbed.networks.routed import RoutedTopo, stages
from testbed.replay import flows
from testbed.traces import noise
from testbed.transports import Flow

Connection = tuple[int, int, int, int]  # job, source and target by rank, channel
FACTORS = 1000  # iterations after which computing varies as from the start


@dataclass(frozen=True)
class Carries:
    """Data that a node sends over one connection."""

    connection: Connection
    payload: float  # bytes


@dataclass(frozen=True)
class Built:
    """A plan, ready to run."""

    loop: Loop
    links: tuple[str, ...]  # names by number: bottlenecks first, then links of hosts
    paths: Mapping[Connection, tuple[tuple[str, str], ...]]  # hop by hop
    nodes: tuple[
        tuple[int, Operation | None, tuple[Carries, ...]], ...
    ]  # job, operation, and sent bytes, by node number
    places: Mapping[int, int]  # of jobs among the plan's, by number


def build(plan: Plan, say: Callable[[str], None] = lambda _: None) -> Built:
    """Build the simulator's arrays for ``plan``; ``say`` is called before loops are compiled.

    With several equal paths, the seed selects one at random for each connection, which keeps it.
    """
    topo = networks.made(plan.topology, plan.topology_args, plan.nics_per_server)
    assert isinstance(topo, RoutedTopo)
    links = {name: number for number, name in enumerate((*plan.bottlenecks, *plan.nics))}
    capacity = [float(link.rate_bps) for link in plan.bottlenecks.values()]
    capacity += [float(plan.sender.nic_bps or 0)] * len(plan.nics)
    threshold = [_frames(link) for link in plan.bottlenecks.values()] + [math.inf] * len(plan.nics)
    draw, paths = random.Random(f"paths {plan.seed}"), dict[Connection, tuple[tuple[str, str], ...]]()
    asked, nodes = list[FlowJob](), list[tuple[int, Operation | None, tuple[Carries, ...]]]()
    for job in plan.jobs:

        def crosses(connection: Connection, hosts: tuple[str, ...] = job.hosts) -> list[int]:
            if connection not in paths:
                paths[connection] = _path(topo, hosts[connection[1]], hosts[connection[2]], draw)
            return [links[f"{a}-{b}"] for a, b in paths[connection] if f"{a}-{b}" in links]

        made = list(_nodes(job, plan.link.mtu, crosses))
        nodes += [(job.job, operation, carries) for _, operation, carries in made]
        asked.append(_job(plan, job, tuple(node for node, _, _ in made)))
    places = {job.job: number for number, job in enumerate(plan.jobs)}
    seed = int.from_bytes(random.Random(f"shares {plan.seed}").randbytes(4), "little")
    loop = Loop(asked, capacity, seed=seed, threshold=threshold, say=say)
    return Built(loop, tuple(links), paths, tuple(nodes), places)


def _frames(link: Link) -> float:
    """Of its queue, from which on it marks."""
    return link.ecn_threshold.min_bytes / frame(link.mtu) if link.ecn_threshold else math.inf


def _job(plan: Plan, job: JobPlan, nodes: tuple[Node, ...]) -> FlowJob:
    force = flow_weights.banded(max(job.bytes_per_worker), job.bands) if job.bands else flow_weights.force(job.cc)
    return FlowJob(
        nodes,
        job.offset_ns / 1e9,
        force,
        0 if job.bands else flow_weights.mltcp_active_from(job.cc),
        None if job.grid is None else (job.grid.period_ns / 1e9, job.grid.phase_ns / 1e9),
        factors=_factors(job),
        # Chance moves jobs apart. In isolation there is none to move away from.
        spread=flow_weights.spread(plan, job) if len(plan.jobs) > 1 else 0.0,
        windows=(0.0, 0.0) if job.bands else flow_weights.WINDOWS,
    )


def _factors(job: JobPlan) -> np.ndarray:
    """Factors of compute time by iteration, sampled as workers sample them; all workers wait for a straggler."""
    varies = noise.Noise(job.noise)
    if not varies.amount:
        return np.ones(1)
    draws = [random.Random(job.seed) for _ in job.hosts]
    ranks = range(len(job.hosts)) if varies.kind == "stragglers" else range(1)
    return np.array(
        [max(noise.factor(varies, draws[rank], rank, len(job.hosts)) for rank in ranks) for _ in range(FACTORS)]
    )


def _path(topo: RoutedTopo, source: str, target: str, draw: random.Random) -> tuple[tuple[str, str], ...]:
    """Return one of the shortest paths as hops, each path with equal probability."""
    here, hops = source, list[tuple[str, str]]()
    for stage in stages(topo, source, target):
        choices = [hop for hop in stage if hop[0] == here]
        hops.append(choices[0] if len(choices) == 1 else draw.choice(choices))
        here = hops[-1][1]
    return tuple(hops)


Made = tuple[Node, Operation | None, tuple[Carries, ...]]


def _nodes(job: JobPlan, mtu: int, crosses: Callable[[Connection], list[int]]) -> Iterator[Made]:
    """An iteration: computations in sequence, and collectives in sequence, each after those it names; rounds in sequence.

    Computing on some ranks only has a separate stream for each set of them.
    """
    if job.groups:
        yield from _joined(list(_nodes_of_groups(job, mtu, crosses)))
        return
    total = sum(_volume(job, operation) for operation in job.collectives)
    ends: dict[str, tuple[int, ...]] = {}  # nodes whose end is that of an operation
    streams: dict[tuple[int, ...] | None, tuple[int, ...]] = {}  # by ranks; collectives' own: None
    count, sent = 0, 0.0
    for operation in job.operations:
        stream = (operation.ranks or tuple(range(len(job.hosts)))) if operation.computes else None
        after = {node for name in operation.after for node in ends[name]}
        for other, last in streams.items():
            if other == stream or (stream is not None and other is not None and set(stream) & set(other)):
                after |= set(last)
        if operation.computes:
            yield Node((operation.duration_ns or 0) / 1e9, tuple(sorted(after))), operation, ()
            streams[stream] = ends[operation.id] = (count,)
            count += 1
            continue
        volume = _volume(job, operation)
        begins_at, ends_at = sent / total, (sent + volume) / total
        before = tuple(sorted(after))
        done = 0.0
        for parts in _rounds(job, operation, crosses):
            own = sum(one.payload for part in parts for one in part)
            low, high = (begins_at + (ends_at - begins_at) * share / volume for share in (done, done + own))
            following = []
            for part in parts:
                yield _flow(part, mtu, before, (low, high), crosses, operation), operation, tuple(part)
                following.append(count)
                count += 1
            before, done = tuple(following), done + own
        sent += volume
        streams[None] = ends[operation.id] = before


def _nodes_of_groups(job: JobPlan, mtu: int, crosses: Callable[[Connection], list[int]]) -> Iterator[Made]:
    volumes, first = {op.exchange: _volume(job, op) for op in job.exchanges}, groups.channels(job)
    total, sent, count = sum(volumes.values()), 0, 0
    ends: list[tuple[int, ...]] = []  # nodes whose end is that of a part
    for one in groups.parts(job):
        operation = one.operation
        before = tuple(sorted({node for part in one.after for node in ends[part]}))
        if operation.computes or operation.inside_ns is not None:
            takes_ns = operation.duration_ns if operation.computes else operation.inside_ns
            yield Node((takes_ns or 0) / 1e9, before), operation, ()
            ends.append((count,))
            count += 1
            continue
        volume = volumes[operation.exchange]
        low, high = sent / total, (sent + volume) / total
        for parts in _rounds(job, operation, crosses, first):
            following = []
            for part in parts:
                yield _flow(part, mtu, before, (low, high), crosses, operation), operation, tuple(part)
                following.append(count)
                count += 1
            before = tuple(following)
        sent += volume
        ends.append(before)


def _joined(every: list[Made]) -> Iterator[Made]:
    """The same iteration with fewer timers, which end at the same times.

    Timers of equal length behind the same nodes are one (ranks that do the same). So is a chain of timers.
    """
    place: list[int] = []  # of each node, the kept one that ends when it ends
    waits: dict[int, set[int]] = {}  # of the kept ones, by number
    nearest: dict[int, frozenset[int]] = {}
    alike: dict[tuple[float, frozenset[int]], int] = {}
    followers = Counter[int]()
    for number, (node, _, _) in enumerate(every):
        after = {place[before] for before in node.after}
        near = frozenset(after.difference(*(waits[one] for one in after)))  # what none of the others waits for itself
        same = alike.setdefault((node.amount, near), number) if node.links is None else number
        place.append(same)
        waits.setdefault(same, set()).update(after)
        if same == number:
            nearest[number] = near
            followers.update(near)
    ends: dict[int, int] = {}  # of the kept ones, the number among those that are made
    made: list[Made] = []
    for number, near in nearest.items():
        node, operation, carries = every[number]
        only = next(iter(near)) if len(near) == 1 else None
        if only is not None and node.links is None and made[ends[only]][0].links is None and followers[only] == 1:
            before, its_operation, its_data = made[ends[only]]
            made[ends[only]] = replace(before, amount=before.amount + node.amount), its_operation, its_data
            ends[number] = ends[only]
            continue
        ends[number] = len(made)
        made.append((replace(node, after=tuple(sorted({ends[before] for before in near}))), operation, carries))
    yield from made


def _flow(
    part: list[Carries],
    mtu: int,
    after: tuple[int, ...],
    ratio: tuple[float, float],
    crosses: Callable[[Connection], list[int]],
    operation: Operation,
) -> Node:
    largest = max(one.payload for one in part)
    times: dict[int, float] = {}
    for one in part:
        for link in crosses(one.connection):
            times[link] = times.get(link, 0.0) + one.payload / largest
    bits = largest * 8 / payload_share(mtu)
    count = 1 if flows.lockstep(operation) else len(part)
    return Node(bits, after, tuple(times), tuple(times.values()), *ratio, flows=count)


def _rounds(
    job: JobPlan,
    operation: Operation,
    crosses: Callable[[Connection], list[int]],
    first: Mapping[tuple[int, Flow], int] = {},
) -> list[list[list[Carries]]]:
    """For each round what travels side by side; in lockstep a channel's flows of a ring, and equal flows over the same links. ``first``: the first channel of a group's flow."""
    found: list[list[list[Carries]]] = []
    every = flows.by_channel(operation, len(job.hosts), operation.bytes or 0, job.channels)
    for channel, rounds in enumerate(every):
        for number, payload in enumerate(rounds):
            if number == len(found):
                found.append([])
            alike: dict[object, list[Carries]] = {}
            for flow, size in payload.items():
                if size:
                    one = Carries((job.job, *flow, first.get((operation.group, flow), 0) + channel), float(size))
                    links = () if job.bands else tuple(crosses(one.connection))
                    # By priority, chance decides for each flow which job's goes first.
                    key = None if flows.lockstep(operation) else (size, links, one.connection if job.bands else None)
                    alike.setdefault(key, []).append(one)
            found[number] += alike.values()
    return [parts for parts in found if parts]


def _volume(job: JobPlan, operation: Operation) -> int:
    return flows.payload(operation, len(job.hosts), operation.bytes or 0, job.channels).total()


Change = Callable[[Built], None]


def timeline(plan: Plan) -> Iterator[tuple[float, Change | None]]:
    """Yield the time in seconds and the change of every external event, in order, without end.

    Events are samples (None), changes of links, and jobs that leave.
    """
    changes: list[tuple[int, Change]] = []
    for event in plan.events:
        assert event.rate_bps is not None
        changes.append((event.at_ns, _changed(event.link, float(event.rate_bps))))
    changes += [(job.leave_ns, _left(job.job)) for job in plan.jobs if job.leave_ns is not None]
    changes.sort(key=lambda change: change[0])
    for number in itertools.count():
        at_ns = number * plan.sample_ns
        while changes and changes[0][0] <= at_ns:
            when, change = changes.pop(0)
            yield when / 1e9, change
        yield at_ns / 1e9, None


def _changed(link: str, rate_bps: float) -> Change:
    return lambda built: built.loop.change(built.links.index(link), rate_bps)


def _left(job: int) -> Change:
    return lambda built: built.loop.stop(built.places[job])

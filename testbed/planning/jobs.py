"""A spec's jobs: what each replays on this network, on which hosts and from when on, for every seed and job scheduler."""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import msgspec

from testbed import networks, registry
from testbed.core import builtin_transport
from testbed.core.builtin_transport import TCP
from testbed.core.errors import RequestError
from testbed.core.placing import Request
from testbed.core.runs.plan import CongestionControl, JobPlan, Link, System, Wire
from testbed.core.runs.plan import Operation as Numeric
from testbed.core.text import count, decimal, quoted
from testbed.core.units import Size
from testbed.models import bounds
from testbed.models.contention import Model
from testbed.networks.routed import RoutedTopo, stages
from testbed.planning import gpu_jobs, links, trace_demand
from testbed.planning.gpu_jobs import Given
from testbed.planning.groups import Grouped
from testbed.planning.links import Network
from testbed.schedulers.job import NoRoomError, place
from testbed.spec import Spec, backend_names, limits, systems
from testbed.spec.job import Job, check_transport
from testbed.traces import collectives, matching
from testbed.traces import trace as traces
from testbed.traces.devices import Device
from testbed.traces.matching import Exchange
from testbed.traces.trace import Operation, Trace
from testbed.transports import Flow

ALONE_ITERATIONS = 10
NONE_YET = CongestionControl("", "", {})
EXACT = 1e-3  # fraction of an iteration that the ideal ignores
SEND_BYTES = 106_496  # bytes in a socket, for which a worker does not wait (`testbed.replay.worker`)
EARLY = 0.25  # share of a run, below which the end of a job's counted iterations is early
OVERLAP = 0.05  # default start offsets: uniform in this share of the ideal iteration

# The network as seen by an isolated job: links and wires of each stage that its flows cross, or its hosts.
Way = tuple[tuple[tuple[Link | None, Wire | None], ...], ...] | tuple[str, ...]


@dataclass(frozen=True)
class Asked:
    """A job, and the iteration it replays on this link; None: it is a real program."""

    job: Job
    trace: Trace | None
    intra_bps: float = math.inf  # of exchanges inside a server
    given: tuple[int, ...] | None = None  # the server of each rank, if a job scheduler gave it GPUs

    @property
    def workers(self) -> int:
        return self.job.workers or 0

    @cached_property
    def grouped(self) -> Grouped | None:
        """The exchanges by group if ranks differ or have several groups; else None."""
        if self.trace is None or self.trace.alike:
            return None
        apart = tuple(range(self.workers)) if self.job.gpus is not None else None  # until it has GPUs
        return Grouped(self.trace, self.job.collective, self.channels, apart if self.given is None else self.given)

    @cached_property
    def servers(self) -> tuple[int, ...]:
        """The server of each worker, by number; each worker has a separate server unless its trace sets another placement."""
        return self.grouped.servers if self.grouped else tuple(range(self.workers))

    @property
    def channels(self) -> int:
        return self.job.channels or 1

    @property
    def varies(self) -> bool:
        """Return True if the computing time varies between iterations."""
        noise = self.job.noise
        return bool(self.trace and self.trace.noise.strip("0.%")) if noise is None else noise.amount > 0

    def over(self, given: Given, model: Model) -> Asked:
        """Return the same job, which requests GPUs, on its assigned servers."""
        assert self.trace is not None and self.job.gpus is not None
        if self.grouped is not None:
            return replace(self, given=given.servers)
        trace = gpu_jobs.on_servers(self.trace, self.job.gpus, len(given.hosts), model)
        return Asked(msgspec.structs.replace(self.job, workers=len(given.hosts)), trace)

    def transport(self, system: System) -> str:
        """The transport of its bytes: the job's own setting, else the system's."""
        how = self.job.transport or (TCP if self.job.cc else system.transport)
        check_transport(self.job, how)
        return how

    @property
    def by_tcp(self) -> str | None:
        """The congestion control of what its own transport sends by TCP."""
        own = self.job.transport
        return None if own is None or builtin_transport.by_kernel(own) else systems.by_tcp(own)

    @cached_property
    def exchanges(self) -> Sequence[Operation | Exchange]:
        """Return the collectives and messages that cross the network; a real program counts as one ring all-reduce."""
        if self.grouped is not None:
            return self.grouped.crossing
        if self.trace is None:
            return [Operation(id="all", kind="all_reduce", bytes=Size(self.workers))]
        return [op for op in self.trace.operations if op.kind != "compute"]

    def rounds(self, op: Operation | Exchange) -> list[dict[Flow, int]]:
        """Payload on each flow in each round of a collective."""
        if isinstance(op, Exchange):
            assert self.grouped is not None
            return self.grouped.rounds(op)
        return traces.rounds(op, self.workers, self.job.collective, self.channels)

    @cached_property
    def flows(self) -> list[Flow]:
        """Pairs of sender and receiver."""
        return list(dict.fromkeys(flow for op in self.exchanges for one in self.rounds(op) for flow in one))

    @cached_property
    def sent(self) -> tuple[int, ...]:
        """Payload bytes each rank sends in one iteration."""
        sent = [0] * self.workers
        for op in self.exchanges:
            for one in self.rounds(op):
                for (source, _), size in one.items():
                    sent[source] += size
        return tuple(sent)

    @property
    def largest(self) -> int:
        """Payload bytes of the largest tensor that one worker sends another."""
        return max((size for op in self.exchanges for one in self.rounds(op) for size in one.values()), default=0)

    @cached_property
    def operations(self) -> tuple[Numeric, ...]:
        """Return the operations in the form of a plan."""
        if self.grouped is not None:
            return self.grouped.operations(self.intra_bps)
        return () if self.trace is None else tuple(_numeric(op, self.job.collective) for op in self.trace.operations)

    @property
    def computing_s(self) -> float:
        """Return the iteration time in seconds if exchanges took no time; 0 for a real program."""
        return 0.0 if self.trace is None else self.critical_path_s(lambda _op: 0.0)

    def timeline(
        self, exchange_s: Callable[[Operation | Exchange], float], buffered_s: float = 0.0
    ) -> tuple[float, list[float]]:
        """Return the isolated iteration time and the start of each of `exchanges`, in seconds.

        ``exchange_s``: duration of an exchange in seconds. Raises `AssertionError` for a real program.
        """
        assert self.trace is not None
        if self.grouped is None:
            times = traces.spans(self.trace, exchange_s)
            starts = [times[op.id][0] for op in self.exchanges if isinstance(op, Operation)]
            return max(end for _, end in times.values()), starts
        matched = self.trace.matched
        found = matching.times(matched, self.grouped.exchange_s(exchange_s, self.intra_bps), buffered_s)
        begun = {step.exchange: max(start for start, _ in own) for step, own in zip(matched.steps, found, strict=True)}
        numbers = {id(one): number for number, one in enumerate(matched.exchanges)}
        return matching.ends_s(found), [begun[numbers[id(one)]] for one in self.grouped.crossing]

    def critical_path_s(self, exchange_s: Callable[[Operation | Exchange], float]) -> float:
        """Return the critical path in seconds (`testbed.traces.trace.critical_path_s`)."""
        assert self.trace is not None
        if self.grouped is not None and self.trace.overlaps:
            return matching.period_s(self.trace.matched, self.grouped.exchange_s(exchange_s, self.intra_bps))
        if self.grouped is not None:
            return self.timeline(exchange_s)[0]
        return traces.critical_path_s(self.trace, exchange_s)

    @property
    def transfers(self) -> int:
        """Return the number of transfers between two workers in one iteration; the flows of a collective count once."""
        if self.grouped is not None:
            return sum(len({flow for each in self.rounds(one) for flow in each}) for one in self.exchanges)
        return sum(count * collectives.connections(name, self.workers) for name, count in self._algorithms.items())

    @property
    def connections(self) -> int:
        """Return the largest number of connections; collectives share the flows that they have in common."""
        if self.grouped is not None:
            return self.grouped.connections
        return self.channels * sum(collectives.connections(name, self.workers) for name in self._algorithms)

    @cached_property
    def _algorithms(self) -> Counter[str]:
        return Counter(traces.algorithm(op, self.job.collective) for op in self.exchanges if isinstance(op, Operation))


@dataclass(frozen=True)
class Placed:
    """The jobs of one seed and job scheduler: on which hosts, and what each of them is, but for its congestion control."""

    seed: int
    scheduler: str
    asked: list[Asked]
    jobs: tuple[JobPlan, ...]
    crossed: list[list[list[bounds.Stage]]]  # by job and flow
    ways: list[Way]  # the network as seen by each job in isolation
    base_rtt_s: float
    needed_bps: int  # sum over all bottlenecks that they keep busy at the same time
    notes: tuple[str, ...]
    servers: dict[str, int]  # GPUs of each server, if jobs request GPUs

    @property
    def in_a_row(self) -> int:
        """Return the largest number of bottlenecks on the path of a flow."""
        return max((len(stages) for flows in self.crossed for stages in flows), default=1)


def asked(spec: Spec) -> list[Asked]:
    """Return every job of the experiment, its trace scaled to the experiment's rate. Raises `RequestError`."""
    intra_bps = math.inf if spec.intra_server_rate is None else float(spec.intra_server_rate)
    known: dict[Job, Asked] = {}  # their trace is read, and its ranks are matched, once
    found: list[Asked] = []
    for job in spec.all_jobs:
        if job not in known:
            trace = None if job.program else _at_rate(job.read_trace(), spec.device_of(job), spec)
            known[job] = Asked(job, trace, intra_bps)
        one = known[job]
        if one.grouped is not None and not one.grouped.groups:
            raise RequestError(
                f"trace {quoted(one.grouped.trace.name)}: no exchange crosses the network. There is nothing to replay"
            )
        found.append(one)
    return found


def _at_rate(trace: Trace, device: Device | None, spec: Spec) -> Trace:
    timed = trace.timed(device)
    scaled = timed.scaled(int(spec.rate)) if spec.keep_duty else timed
    return scaled.one_list if scaled.alike else scaled


def _notes(spec: Spec, one: Asked, hosts: tuple[str, ...], network: Network) -> Iterator[str]:
    """How the trace of a job is replayed: on which device, by how many workers, with which bytes."""
    if one.trace is None or one.job.trace is None:
        return
    trace, stored = one.trace, traces.load(one.job.trace)
    device = spec.device_of(one.job) or (trace.device.device() if trace.device is not None else None)
    if device and any(op.by_work for op in stored.all_operations):
        yield f"{trace.name} computes its work on {device}"
    if trace.ranks not in (None, one.workers):
        yield f"{trace.name} is of {trace.ranks} ranks, and {one.workers} workers replay it"
    native = stored.native_rate
    if native is None:
        if spec.keep_duty:
            yield f"bytes of {trace.name} are not scaled: it has no native rate, which keep_duty needs"
        return
    factor = f"{decimal(int(spec.rate) / native, 4)} ({spec.rate} ÷ its native rate, {native})"
    if spec.keep_duty:
        yield f"bytes of {trace.name} are scaled by {factor}: keep_duty"
        return
    busy_s, compute_s = _busiest_s(one, trace, _in_turn(one, hosts, network))
    if busy_s > compute_s and native > spec.rate:
        yield (
            f"{trace.name} communicates for {decimal(busy_s * 1e3, 3)} ms and computes for {decimal(compute_s * 1e3, 3)} ms of an "
            f"iteration. Its bytes are not scaled; --keep-duty would scale them by {factor}"
        )


def _measured_early(jobs: Sequence[JobPlan]) -> Iterator[str]:
    """Jobs whose counted iterations end long before the run. They continue until all jobs have theirs."""
    if any(job.ideal_s is None or job.life is not None for job in jobs):  # unknown, or none continues
        return
    lengths = [job.offset_ns / 1e9 + job.iterations * (job.ideal_s or 0.0) for job in jobs]
    for job, length_s in zip(jobs, lengths, strict=True):
        if 0 < length_s < EARLY * max(lengths) and job.leave_ns is None:
            share = length_s / max(lengths)
            yield (
                f"job {job.job} ({job.trace}) is measured only in the first {decimal(share * 100, 2)} % of the run, because its "
                f"{count(job.iterations, 'iteration')} end early. Give it iterations={round(job.iterations / share)}"
            )


def _busiest_s(one: Asked, trace: Trace, takes_s: Callable[[Operation | Exchange], float]) -> tuple[float, float]:
    """How long the rank that communicates for longest does so in an iteration, and how long it computes."""
    if one.grouped is None:
        return sum(map(takes_s, one.exchanges)), trace.compute_s
    busy = Counter[int]()
    for each in one.grouped.crossing:
        busy.update(dict.fromkeys(each.members, takes_s(each)))
    rank = max(busy, key=lambda rank: busy[rank], default=0)
    role = next(role for role in trace.all_roles if rank in role.ranks)
    return busy[rank], sum(op.duration or 0 for op in role.operations) / 1e9


def ordered(spec: Spec, wanted: list[Asked], seed: int) -> list[Asked]:
    """The jobs in the order in which they are numbered for this seed, the same under every system and job scheduler."""
    return wanted if spec.job_order == "file" else random.Random(f"job order {seed}").sample(wanted, len(wanted))


def check_size(wanted: Sequence[Asked], spec: Spec) -> None:
    """Raises `TooLargeError` if the jobs need more than their backend takes; computed before anything is built."""
    most = limits.limits_for(spec.on)
    most.check("connections", sum(one.connections for one in wanted), "jobs")
    most.check("transfers", sum(one.transfers for one in wanted), "jobs")


def placed(spec: Spec, wanted: list[Asked], network: Network, scheduler: str, seed: int, model: Model) -> Placed:
    """The jobs as one seed and job scheduler have them; raises `RequestError`."""
    computed = backend_names.is_computed(spec.on)
    servers, fewest = dict[str, int](), list[float | None]([None] * len(wanted))
    if not spec.lives:
        try:
            on = place(network.topo, [len(set(one.servers)) for one in wanted], scheduler, seed)
        except NoRoomError as error:
            raise RequestError(f"{error} {networks.how_to_enlarge(spec.topo)}") from error
        given = [Given(_interfaces(network.topo, one.servers, own)) for one, own in zip(wanted, on, strict=True)]
    else:
        by_rank = {number for number, one in enumerate(wanted) if one.grouped is not None}
        given = gpu_jobs.give(network.topo, _requests(spec, wanted), scheduler, model, seed, by_rank)
        packed = [(one.over(own.packed, model), own.packed.hosts) for one, own in zip(wanted, given, strict=True)]
        fewest = [_ideal_s(one, hosts, network, computed=computed) for one, hosts in packed]
        wanted = [one.over(own, model) for one, own in zip(wanted, given, strict=True)]
        check_size(wanted, spec)
        servers = gpu_jobs.servers(network.topo)
    topo, bottlenecks, hosts = network.topo, network.bottlenecks, [own.hosts for own in given]
    ways = [_network_alone(one, own, network) for one, own in zip(wanted, hosts, strict=True)]
    ideals = [_ideal_s(one, own, network, computed=computed) for one, own in zip(wanted, hosts, strict=True)]
    in_turn = [_in_turn_s(one, own, network) for one, own in zip(wanted, hosts, strict=True)]
    crossed = [
        [bounds.crossed(topo, bottlenecks, own[a], own[b]) for a, b in one.flows]
        for one, own in zip(wanted, hosts, strict=True)
    ]
    connections = [(stages, one.channels) for one, flows in zip(wanted, crossed, strict=True) for stages in flows]
    needed_bps = bounds.needed_bps(connections, bottlenecks)
    ends = next((own for own in hosts if len(set(own)) > 1), hosts[0])
    base_rtt_s = links.base_rtt_s(network, ends[0], ends[-1])
    starts = _offsets(spec, wanted, in_turn, seed)
    jobs = tuple(
        _job(spec, number, one, own, ideals[number], fewest[number], starts[number], seed)
        for number, (one, own) in enumerate(zip(wanted, given, strict=True))
    )
    notes = [text for one, own in zip(wanted, hosts, strict=True) for text in _notes(spec, one, own, network)]
    return Placed(
        seed,
        scheduler,
        wanted,
        jobs,
        crossed,
        ways,
        base_rtt_s,
        needed_bps,
        (*dict.fromkeys(notes), *_measured_early(jobs)),
        servers,
    )


def _interfaces(topo: RoutedTopo, servers: Sequence[int], hosts: Sequence[str]) -> tuple[str, ...]:
    """Return, by rank, the host by which it communicates: its server, or that server's interfaces round-robin."""
    seen: Counter[int] = Counter()
    found = []
    for server in servers:
        found.append(topo.nic(hosts[server], seen[server]))
        seen[server] += 1
    return tuple(found)


def _in_turn_s(asked: Asked, hosts: tuple[str, ...], network: Network) -> float | None:
    """An iteration in isolation on these hosts, if each round of a collective begins when the one before has ended everywhere.

    None: a real program's is unknown.
    """
    return None if asked.trace is None else asked.critical_path_s(_in_turn(asked, hosts, network))


def _in_turn(asked: Asked, hosts: tuple[str, ...], network: Network) -> Callable[[Operation | Exchange], float]:
    def takes_s(op: Operation | Exchange) -> float:
        rounds = asked.grouped.together(op) if asked.grouped and isinstance(op, Exchange) else asked.rounds(op)
        return bounds.exchange_s(rounds, asked.channels, hosts, network.topo, network.limited)

    return takes_s


def _ideal_s(asked: Asked, hosts: tuple[str, ...], network: Network, *, computed: bool) -> float | None:
    """Return the lower bound of the isolated iteration time on these hosts, in seconds; None for a real program.

    If ``computed``, rounds begin one after the other. On a kernel, workers may continue earlier, and shapers let some
    frames pass at once. This counts if it exceeds `EXACT` of the iteration.
    """
    in_turn_s = _in_turn_s(asked, hosts, network)
    if asked.grouped is not None:
        return _least_of_groups_s(asked, asked.grouped, hosts, network, computed=computed)
    if computed or asked.trace is None or in_turn_s is None:
        return in_turn_s
    least_s = _least_s(asked, asked.trace, hosts, network) if asked.exchanges else in_turn_s
    return least_s if 0 < least_s < in_turn_s * (1 - EXACT) else in_turn_s


def _least_of_groups_s(
    asked: Asked, grouped: Grouped, hosts: tuple[str, ...], network: Network, *, computed: bool
) -> float:
    """Return the lower bound in seconds if groups that communicate at the same time share links.

    It is the larger of two bounds: the groups one after the other, and the busiest link. On a kernel, a sender
    continues when the rest of its message is in the socket, and each round gains by the shapers' buckets.
    """
    way = hosts, network.topo, network.limited
    rounds = {id(one): grouped.together(one) for one in grouped.crossing}

    def least_s(one: Operation | Exchange) -> float:
        assert isinstance(one, Exchange)
        own = rounds[id(one)]
        if computed:
            return bounds.exchange_s(own, asked.channels, *way)
        takes = bounds.overlapped_s(own, asked.channels, *way, grouped.waits(one), SEND_BYTES)
        return max(0.0, takes - sum(bounds.saved_s(each, *way) for each in own))

    slowest = min((link.rate_bps for link in network.limited.values()), default=math.inf)
    buffered_s = 0.0 if computed else SEND_BYTES * 8 / slowest
    takes_s = grouped.exchange_s(least_s, asked.intra_bps)
    if computed and not grouped.trace.overlaps:
        found_s = matching.ends_s(matching.times(grouped.trace.matched, takes_s))
    else:
        found_s = matching.period_s(grouped.trace.matched, takes_s, buffered_s)
    every = [payload for one in grouped.crossing for payload in grouped.rounds(one)]
    loaded_s = bounds.loaded_s(every, *way)
    if not computed:
        loaded_s -= max((bounds.saved_s(payload, *way) for payload in every), default=0.0) + buffered_s
    return max(found_s, loaded_s)


def _least_s(asked: Asked, trace: Trace, hosts: tuple[str, ...], network: Network) -> float:
    """Where workers and shapers are a kernel's; 0 where a few frames are all that is sent, and buckets let them pass."""
    way = hosts, network.topo, network.limited
    exchanges = [op for op in asked.exchanges if isinstance(op, Operation)]
    rounds = {op.id: asked.rounds(op) for op in exchanges}

    def waits(op: Operation) -> collectives.Waits:
        return collectives.waits(traces.algorithm(op, asked.job.collective))

    def least_s(op: Operation) -> float:
        return bounds.overlapped_s(rounds[op.id], asked.channels, *way, waits(op), SEND_BYTES)

    first = exchanges[0]
    saved_s = max(bounds.saved_s(payload, *way) for payload in rounds[first.id])
    found_s = traces.critical_path_s(trace, least_s, at_once=asked.job.credit_bytes is not None)
    if not trace.overlaps:
        # A bucket fills while its link rests. It is full when a run begins, which counts in the mean of its iterations.
        times, ended_s = traces.spans(trace, _in_turn(asked, hosts, network)), 0.0
        for op in exchanges:
            gains = [bounds.saved_s(payload, *way) for payload in rounds[op.id]]
            filled_s = min(times[op.id][0] - ended_s, gains[0])
            found_s -= filled_s + (sum(gains[1:]) if waits(op) == "hub" else 0.0)
            if op is first:
                found_s -= (gains[0] - filled_s) / _counted(asked)
            ended_s = times[op.id][1]
    loaded_s = bounds.loaded_s((payload for own in rounds.values() for payload in own), *way)
    return max(found_s, loaded_s - saved_s / _counted(asked), asked.computing_s)


def _counted(asked: Asked) -> int:
    """Iterations of a run in isolation that count."""
    return max(1, min(asked.job.iterations or ALONE_ITERATIONS, ALONE_ITERATIONS) - 1)


def _job(
    spec: Spec, number: int, asked: Asked, given: Given, ideal_s: float | None, fewest_s: float | None, start_ns: int, seed: int
) -> JobPlan:  # fmt: skip
    job, trace = asked.job, asked.trace
    return JobPlan(
        job=number,
        trace=job.label if trace is None else trace.name,
        hosts=given.hosts,
        cc=NONE_YET,
        operations=asked.operations,
        offset_ns=start_ns if given.life is None else given.life.at_ns,
        noise=str(job.noise or (trace.noise if trace else "0%")),
        seed=f"noise {seed} {number}",
        ideal_s=ideal_s,
        bytes_per_worker=() if trace is None else asked.sent,
        iterations=job.iterations or 0,
        channels=asked.channels if job.credit_bytes is None else spec.priority_queues.data,
        window=None if job.credit_bytes is None else int(job.credit_bytes),
        partition=None if job.partition_bytes is None else int(job.partition_bytes),
        leave_ns=None if job.leave is None else int(job.leave),
        program=job.program,
        life=given.life,
        fewest_s=fewest_s,
        trains=job.train,
        groups=asked.grouped.groups if asked.grouped else (),
    )


def _numeric(op: Operation, collective: str | None) -> Numeric:
    ranks = None if op.ranks is None else tuple(op.ranks)
    if op.kind == "compute":
        return Numeric(op.id, op.kind, tuple(op.after), ranks, duration_ns=int(op.duration or 0))
    size, algorithm = int(op.bytes or 0), traces.algorithm(op, collective)
    if registry.is_file_name(algorithm):
        algorithm = str(Path(algorithm).resolve())  # workers have another current folder
    importance = (op.importance,) if isinstance(op.importance, float) else op.importance or ()
    return Numeric(
        op.id, op.kind, tuple(op.after), ranks, bytes=size, algorithm=algorithm, layer=op.layer or 0, importance=importance
    )  # fmt: skip


def _network_alone(asked: Asked, hosts: tuple[str, ...], network: Network) -> Way:
    """The network of a job in isolation: what its flows cross, or its hosts, where these decide whether flows meet."""
    crossed = tuple(
        tuple((network.bottlenecks.get(f"{a}-{b}"), network.wires.get(f"{a}-{b}")) for a, b in stage)
        for source, target in asked.flows
        for way in ((hosts[source], hosts[target]), (hosts[target], hosts[source]))
        for stage in stages(network.topo, *way)
    )
    lonely = len(asked.flows) * asked.channels == 1
    return crossed if lonely or all(len(stage) == 1 for stage in crossed) else hosts


def _requests(spec: Spec, asked: list[Asked]) -> list[Request]:
    """The requests of jobs for GPUs; arrivals follow the job, else --start-offsets, else they are at the start."""
    arrives = (
        _offsets(spec, asked, [None] * len(asked), spec.seed)
        if spec.start_offsets.times
        else [int(one.job.offset or 0) for one in asked]
    )
    found = []
    for number, (one, arrival_ns) in enumerate(zip(asked, arrives, strict=True)):
        if one.trace is None:
            continue
        size = one.trace.bytes_per_iteration
        if one.grouped is not None:
            size = trace_demand.demand(one.trace, one.job.gpus).gradient_bytes
        found.append(
            Request(number, one.job.gpus or 0, one.job.iterations or 0, size, one.computing_s, arrival_ns / 1e9)
        )
    return found


def _offsets(spec: Spec, asked: list[Asked], lasts: list[float | None], seed: int) -> list[int]:
    """The start of each job in ns: set by the job, given for all, or sampled from the seed as a fraction of an iteration."""
    if not spec.start_offsets.times:
        draw = random.Random(f"offsets {seed}")
        width = 1.0 if spec.start_offsets == "uniform" else OVERLAP
        drawn = [int(draw.uniform(0, width) * (1.0 if each is None else each) * 1e9) for each in lasts]
    else:
        drawn = [int(at) for at in spec.start_offsets.times]
        if len(drawn) != spec.jobs:
            raise RequestError(f"start_offsets: {len(drawn)} given for {spec.jobs} jobs; one each, as in 0ms,50ms")
    return [at if one.job.offset is None else int(one.job.offset) for one, at in zip(asked, drawn, strict=True)]

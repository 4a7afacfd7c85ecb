"""From a spec to plans: one plan is one run (one congestion control, one seed), fully numeric.

A plan is what a substrate carries into its Linux (as JSON) and what the manifest keeps.
"""

from __future__ import annotations

import itertools
import math
import random
from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec
from mininet.topo import Topo

import flow_schedulers
import topologies
import transports
from congestion import catalogue
from core import carrier
from core.carrier import TCP
from core.errors import RequestError
from core.placing import Request
from core.runs.plan import CongestionControl, JobPlan, Life, Link, LinkEvent, Plan, System, Wire
from core.runs.plan import Operation as Numeric
from core.runs.upgrade import VERSION
from core.text import quoted, shown
from core.units import Size
from job_schedulers import place
from testbed.planning import links, lives
from testbed.planning.names import default_name
from testbed.planning.profiles import Profile
from testbed.planning.profiles import profile as profiled
from testbed.spec import LinkSpec, Spec, limits, systems
from testbed.spec.job import Job, check_transport
from testbed.spec.limits import Limits
from testbed.spec.written import Bands
from theory import bounds
from theory.contention import Model
from theory.frames import payload_share
from topologies import spraying
from topologies.routed import RoutedTopo, TooManyError, at_most, has_choice, stages
from transports import Flow
from workloads import collectives
from workloads import trace as traces
from workloads.trace import Operation, Trace

ALONE_ITERATIONS = 10
NONE_YET = CongestionControl("", "", {})
OVERLAP = 0.05  # default start offsets: uniform in this share of the ideal iteration


def topology_of(spec: Spec) -> tuple[Topo, tuple[int, ...]]:
    """The spec's network, with the arguments its class was given; raises `RequestError`."""
    name, *words = spec.topo.split(",")
    try:
        args = tuple(int(word) for word in words)
    except ValueError as error:
        raise RequestError(f"topo: {quoted(spec.topo)}: the arguments of a topology are whole numbers") from error
    cls = topologies.find(name)
    most = limits.of(spec.on)
    try:
        with at_most(most.hosts, most.links):
            if not args and hasattr(cls, "sized"):
                topo = cls.sized(spec.jobs, max(job.workers or 0 for job in spec.all_jobs))
                args = tuple(topo.arguments)
            else:
                topo = cls(*args)
    except TooManyError as error:
        raise limits.TooLargeError(f"topo: {shown(spec.topo)}: {error} that can be {most.done}") from error
    except Exception as error:
        raise RequestError(f"topo: {quoted(spec.topo)} cannot be made: {type(error).__name__}: {error}") from error
    if not isinstance(topo, RoutedTopo):
        raise RequestError(
            f"topo: {spec.topo} is no RoutedTopo, and its nodes would have no routes; derive it from "
            "topologies.routed.RoutedTopo, as examples/two_sites.py does (docs/topologies.md)"
        )
    return topo, args


# What the network is to a job alone: links and wires of each stage that its flows cross, or its hosts.
Way = tuple[tuple[tuple[Link | None, Wire | None], ...], ...] | tuple[str, ...]


@dataclass(frozen=True)
class Placed:
    """The jobs of one seed and job scheduler: on which hosts, and what each of them is, but for its congestion control."""

    seed: int
    scheduler: str
    asked: list[_Asked]
    hosts: list[tuple[str, ...]]
    jobs: tuple[JobPlan, ...]
    ways: list[Way]  # what the network is to each of them alone


@dataclass(frozen=True)
class Scenario:
    """An experiment, resolved: its network and its jobs are computed once, and every plan follows from them."""

    spec: Spec
    link: Link  # what the spec says of every bottleneck
    topo: Topo
    topology_args: tuple[int, ...]
    bottlenecks: dict[str, Link]
    wires: dict[str, Wire]
    events: tuple[LinkEvent, ...]
    systems: list[System]
    placed: list[Placed]


def resolve(spec: Spec, model: Model | None = None) -> Scenario:
    """Network and jobs of an experiment, for every seed; raises `RequestError`.

    ``model``: by what a job scheduler gives GPUs to jobs that ask for some; None: by equation 8 with the link's rate.
    """
    link = links.link(spec, LinkSpec())
    wanted = [_Asked(job, None if job.program else job.read_trace().scaled(link.rate_bps)) for job in spec.all_jobs]
    _check_size(wanted, limits.of(spec.on))
    topo, args = topology_of(spec)
    bottlenecks, wires = links.bottlenecks_and_wires(spec, topo)
    model = model or Model(float(link.rate_bps), math.inf if spec.intra_rate is None else float(spec.intra_rate))
    placed = []
    for scheduler, seed in itertools.product(spec.scheduler, range(spec.seed, spec.seed + spec.seeds)):
        asked, given = wanted, None
        if spec.lives:
            given = lives.give(topo, _requests(spec, wanted), scheduler, model, seed)
            asked = [one.over(own, model) for one, own in zip(wanted, given, strict=True)]
            _check_size(asked, limits.of(spec.on))
            hosts = [own.hosts for own in given]
        else:
            hosts = place(topo, [job.workers for job in asked], scheduler, seed)
        jobs = _jobs(
            spec, asked, topo, bottlenecks, hosts, seed, None if given is None else [own.life for own in given]
        )
        ways = [_network_alone(job, own, topo, bottlenecks, wires) for job, own in zip(asked, hosts, strict=True)]
        placed.append(Placed(seed, scheduler, asked, hosts, jobs, ways))
    return Scenario(
        spec, link, topo, args, bottlenecks, wires, links.events(spec, topo, bottlenecks),
        [systems.parse(label) for label in spec.system], placed,
    )  # fmt: skip


def plans(scenario: Scenario) -> list[Plan]:
    """Every run of the experiment, in order: for each job scheduler and seed each system, then its jobs alone.

    A flow scheduler's runs come after those of its jobs alone, which are the profiles it needs (`replan`): here it goes by
    the ideal iteration.
    """
    spec = scenario.spec
    result: list[Plan] = []
    for placed in scenario.placed:
        for system in scenario.systems:
            plan = _plan(scenario, placed, system, {})
            plan = msgspec.structs.replace(plan, measure_capacity=not result)
            # A scheduler's plan goes by the jobs alone of its own seed.
            wanted = spec.alone == "each" or (spec.alone == "first" and placed.seed == spec.seed)
            wanted = wanted or (system.flow_scheduler is not None and not spec.lives)
            alone = [_alone(plan, job) for job in plan.jobs if wanted and job.like == job.job]
            result += [*alone, plan] if system.flow_scheduler else [plan, *alone]
    return result


Planned = tuple[Scenario, list[Plan]]


def planned(spec: Spec, model: Model | None = None) -> Planned:
    """An experiment, resolved, and its plans."""
    scenario = resolve(spec, model)
    return scenario, plans(scenario)


def replan(scenario: Scenario, plan: Plan, profiles: Mapping[int, Profile]) -> Plan:
    """``plan`` as its flow scheduler makes it that knows what each job's iterations took alone, by job."""
    placed = next(one for one in scenario.placed if (one.seed, one.scheduler) == (plan.seed, plan.scheduler))
    system = next(system for system in scenario.systems if system.label == plan.system.label)
    again = _plan(scenario, placed, system, profiles)
    return msgspec.structs.replace(again, measure_capacity=plan.measure_capacity)


def _plan(scenario: Scenario, placed: Placed, system: System, profiles: Mapping[int, Profile]) -> Plan:
    spec, topo, bottlenecks, link = scenario.spec, scenario.topo, scenario.bottlenecks, scenario.link
    sharing = _schedule(system, placed.asked, topo, bottlenecks, placed.hosts, profiles)
    if spec.lives and any(rule.grid for rule in sharing.rules):
        raise RequestError(
            f"system: {system.label} sets a clock for jobs that all run from the start, and jobs that ask for GPUs wait for others; "
            "leave it out, or give jobs `workers` in place of `gpus`"
        )
    own = [
        catalogue.on_link(catalogue.parse(asked.job.cc or asked.by_tcp or rule.cc, spec.preset), link.rate_bps)
        for asked, rule in zip(placed.asked, sharing.rules, strict=True)
    ]
    connections = list(_connections(placed.asked, placed.hosts))
    _check_windows(system, placed, sharing)
    wanted = _bands(scenario, placed, system)
    sender = msgspec.structs.replace(links.sender(spec, link), bands=wanted.data)
    ends = next(((own[0], own[-1]) for own in placed.hosts if len(own) > 1), (placed.hosts[0][0], placed.hosts[0][-1]))
    plan = Plan(
        version=VERSION,
        experiment=spec.name or default_name(spec),
        system=msgspec.structs.replace(
            system,
            congestion=tuple(
                catalogue.on_link(catalogue.parse(control.spec, spec.preset), link.rate_bps)
                for control in system.congestion
            ),
        ),
        seed=placed.seed,
        topology=str(Path(spec.topo).resolve()) if spec.topo.endswith(".py") else spec.topo.split(",")[0],
        topology_args=scenario.topology_args,
        link=link,
        bottlenecks=_banded(wanted, bottlenecks, sharing),
        wires=scenario.wires,
        base_rtt_s=links.base_rtt_s(topo, *ends, bottlenecks, scenario.wires, sender.nic_bps),
        jobs=_with_their_kinds(
            (
                msgspec.structs.replace(
                    job,
                    cc=control,
                    grid=rule.grid,
                    bands=rule.bands,
                    falls=rule.falls,
                    exclusive=rule.exclusive,
                    transport=asked.transport(system),
                )
                for job, asked, control, rule in zip(placed.jobs, placed.asked, own, sharing.rules, strict=True)
            ),
            placed.ways,
        ),
        sample_ns=int(spec.sample),
        events=scenario.events,
        rto_min_us=None if spec.rto_min is None else int(spec.rto_min) // 1000,
        assumptions=tuple(
            dict.fromkeys(text for asked in placed.asked if asked.trace for text in asked.trace.assumptions)
        ),
        needed_bps=bounds.needed_bps(connections, topo, bottlenecks),
        in_a_row=max((len(bounds.crossed(topo, bottlenecks, a, b)) for a, b, _ in connections), default=1),
        multipath=has_choice(topo),
        paths=_paths(scenario, placed, system),
        sender=sender,
        nics=links.nics(sender, topo, bottlenecks),
        schedule=sharing.report or None,
        scheduler=placed.scheduler,
        messages=spec.messages,
        crossed=len(spec.scheduler) > 1,
    )
    _check_marks(plan)
    return plan


def _check_size(asked: list[_Asked], most: Limits) -> None:
    """Raises `TooLargeError` if the jobs come to more than their place takes; computed, before anything is built."""
    most.check("connections", sum(one.connections for one in asked), "jobs")
    most.check("transfers", sum(one.transfers for one in asked), "jobs")


def _check_marks(plan: Plan) -> None:
    marks = any(link.marking for link in plan.bottlenecks.values())
    for cc in plan.ccs:
        if not marks and cc.traits.needs_marks:
            raise RequestError(
                f"ecn: {cc.name} lives on marks, and no bottleneck marks: leave out --ecn off (for DCTCP), or give "
                "--ecn 5kB,200kB,1% (DCQCN's published thresholds, for 40 Gbit/s and more)."
            )


def _paths(scenario: Scenario, placed: Placed, system: System) -> int:
    """How many addresses each host has: one for each path, if a transport sprays (its options say ``sprays``)."""
    if not any(getattr(one.options, "sprays", False) for one in _transports(placed, system)):
        return 1
    if any(event.up is not None for event in scenario.events):
        raise RequestError(
            "event: a link that fails takes the paths over it away, and a transport that sprays does not notice: leave out "
            "the event, or the spraying."
        )
    assert isinstance(scenario.topo, RoutedTopo)
    return spraying.paths(scenario.topo)


def _check_windows(system: System, placed: Placed, sharing: flow_schedulers.Sharing) -> None:
    """Raises `RequestError` if several exchanges are to be in flight where something goes by one after the other."""
    for job, asked, rule in zip(placed.jobs, placed.asked, sharing.rules, strict=True):
        if (job.window is not None or job.overlaps) and (rule.grid or rule.bands):
            raise RequestError(
                f"job {job.job} ({job.trace}) has several exchanges or iterations in flight, and {system.label} goes by one after the "
                "other; leave out one of them"
            )
        how = asked.transport(system)
        if job.window is not None and carrier.by_kernel(how) and transports.parse(how).lossy:
            raise RequestError(
                f"job {job.job} ({job.trace}): with a window TCP delivers every byte: leave out the window, or close and share"
            )


def _bands(scenario: Scenario, placed: Placed, system: System) -> Bands:
    """The bands at every switch: as asked for, else as a transport wants them."""
    if scenario.spec.bands != "1":
        return scenario.spec.bands
    texts = {str(getattr(way.options, "bands", "1")) for way in _transports(placed, system)}
    if len(texts) > 1:
        raise RequestError(
            f"transports want different bands at switches: {', '.join(sorted(texts))}; say which: --bands"
        )
    (found,) = map(Bands, texts)
    if found.drops and not all(link.marking for link in scenario.bottlenecks.values()):
        raise RequestError(
            f"{system.label} wants bands that drop from the threshold at which a link marks: leave out --ecn off"
        )
    return found


def _transports(placed: Placed, system: System) -> list[transports.Transport]:
    return [transports.parse(one.transport(system)) for one in placed.asked]


def _banded(asked: Bands, bottlenecks: dict[str, Link], sharing: flow_schedulers.Sharing) -> dict[str, Link]:
    bands = 1 + max(len(rule.bands) for rule in sharing.rules)
    if asked.data > 1 or asked.drops:
        if bands > 1:
            raise RequestError(f"bands: {asked}: the flow scheduler has bands of its own; leave out one of them")
        return {name: links.banded(link, asked.data, drops=asked.drops) for name, link in bottlenecks.items()}
    return {name: msgspec.structs.replace(link, bands=bands) for name, link in bottlenecks.items()}


@dataclass(frozen=True)
class _Asked:
    """A job, and the iteration it replays on this link; None: it is a real program."""

    job: Job
    trace: Trace | None

    @property
    def workers(self) -> int:
        return self.job.workers or 0

    def over(self, given: lives.Given, model: Model) -> _Asked:
        """The same job, which asks for GPUs, on the servers where it got them."""
        assert self.trace is not None and self.job.gpus is not None
        trace = lives.on_servers(self.trace, self.job.gpus, len(given.hosts), model)
        return _Asked(msgspec.structs.replace(self.job, workers=len(given.hosts)), trace)

    def transport(self, system: System) -> str:
        """How its bytes travel: as it says itself, else as the system does."""
        how = self.job.transport or (TCP if self.job.cc else system.transport)
        check_transport(self.job, how)
        return how

    @property
    def by_tcp(self) -> str | None:
        """The congestion control of what its own transport sends by TCP."""
        own = self.job.transport
        return None if own is None or carrier.by_kernel(own) else systems.by_tcp(own)

    def rounds(self, op: Operation) -> list[dict[Flow, int]]:
        return traces.rounds(op, self.workers, self.job.collective, self.job.channels or 1)

    @property
    def exchanges(self) -> list[Operation]:
        """Its collectives; a real program's are taken for an all-reduce over a ring."""
        if self.trace is None:
            return [Operation(id="all", kind="all_reduce", bytes=Size(self.workers))]
        return [op for op in self.trace.operations if op.kind != "compute"]

    @property
    def transfers(self) -> int:
        """From one worker to another in one iteration, counting a collective's flows once."""
        algorithms = Counter(traces.algorithm(op, self.job.collective) for op in self.exchanges)
        return sum(count * collectives.connections(name, self.workers) for name, count in algorithms.items())

    @property
    def connections(self) -> int:
        """At most: collectives that have flows in common share them."""
        algorithms = {traces.algorithm(op, self.job.collective) for op in self.exchanges}
        return (self.job.channels or 1) * sum(collectives.connections(name, self.workers) for name in algorithms)

    @property
    def flows(self) -> list[Flow]:
        """Who sends to whom."""
        return list(dict.fromkeys(flow for op in self.exchanges for one in self.rounds(op) for flow in one))


def _with_their_kinds(jobs: Iterable[JobPlan], ways: list[Way]) -> tuple[JobPlan, ...]:
    """The jobs, each knowing the first one of its kind: that one alone speaks for all."""
    kinds: dict[Hashable, int] = {}
    return tuple(
        msgspec.structs.replace(
            job,
            like=kinds.setdefault(
                (
                    job.operations,
                    job.program,
                    job.noise,
                    job.channels,
                    job.window,
                    job.partition,
                    job.cc.spec,
                    job.transport,
                    job.ideal_s,
                    len(job.hosts),
                    way,
                ),
                job.job,
            ),
        )
        for job, way in zip(jobs, ways, strict=True)
    )


def _network_alone(
    asked: _Asked, hosts: tuple[str, ...], topo: Topo, bottlenecks: dict[str, Link], wires: dict[str, Wire]
) -> Way:
    """What the network is to a job alone: what its flows cross, or its hosts, where these decide whether flows meet."""
    crossed = tuple(
        tuple((bottlenecks.get(f"{a}-{b}"), wires.get(f"{a}-{b}")) for a, b in stage)
        for source, target in asked.flows
        for way in ((hosts[source], hosts[target]), (hosts[target], hosts[source]))
        for stage in stages(topo, *way)
    )
    lonely = len(asked.flows) * (asked.job.channels or 1) == 1
    return crossed if lonely or all(len(stage) == 1 for stage in crossed) else hosts


def _alone(plan: Plan, job: JobPlan) -> Plan:
    life = None if job.life is None else msgspec.structs.replace(job.life, arrives_ns=0, at_ns=0, after=())
    lone = msgspec.structs.replace(
        job, offset_ns=0, leave_ns=None, iterations=min(job.iterations, ALONE_ITERATIONS), grid=None, life=life
    )
    # Nothing happens to links: `alone_s` is what a job takes on the network as it is at first.
    return msgspec.structs.replace(plan, alone=job.job, jobs=(lone,), measure_capacity=False, schedule=None, events=())


def _jobs(
    spec: Spec, asked: list[_Asked], topo: Topo, bottlenecks: dict[str, Link], places: list[tuple[str, ...]], seed: int,
    given: list[Life] | None,
) -> tuple[JobPlan, ...]:  # fmt: skip
    ideals = [
        None if one.trace is None else traces.critical_path_s(
            one.trace,
            lambda op, one=one, hosts=hosts: bounds.exchange_s(  # type: ignore[misc]
                one.rounds(op), one.job.channels or 1, hosts, topo, bottlenecks
            ),
        )
        for one, hosts in zip(asked, places, strict=True)
    ]  # fmt: skip
    offsets = _offsets(spec, asked, ideals, seed) if given is None else [life.at_ns for life in given]
    return tuple(
        JobPlan(
            job=number,
            trace=one.job.label if one.trace is None else one.trace.name,
            hosts=places[number],
            cc=NONE_YET,
            operations=tuple(_numeric(op, one.job.collective) for op in one.trace.operations) if one.trace else (),
            offset_ns=offsets[number],
            noise=str(one.job.noise or (one.trace.noise if one.trace else "0%")),
            seed=f"noise {seed} {number}",
            ideal_s=ideals[number],
            bytes_per_worker=_sent(one) if one.trace else (),
            iterations=one.job.iterations or 0,
            channels=one.job.channels or 1 if one.job.window is None else spec.bands.data,
            window=None if one.job.window is None else int(one.job.window),
            partition=None if one.job.partition is None else int(one.job.partition),
            leave_ns=None if one.job.leave is None else int(one.job.leave),
            program=one.job.program,
            life=None if given is None else given[number],
        )
        for number, one in enumerate(asked)
    )


def _requests(spec: Spec, asked: list[_Asked]) -> list[Request]:
    """What jobs that ask for GPUs want; they arrive when they say, or as --offsets lists it, else at the start."""
    arrives = (
        _offsets(spec, asked, [None] * len(asked), spec.seed)
        if spec.offsets.times
        else [int(one.job.offset or 0) for one in asked]
    )
    return [
        lives.request(number, one.job.gpus or 0, one.trace, one.job.iterations or 0, arrives_ns)
        for number, (one, arrives_ns) in enumerate(zip(asked, arrives, strict=True))
        if one.trace is not None
    ]


def _schedule(
    system: System,
    asked: list[_Asked],
    topo: Topo,
    bottlenecks: dict[str, Link],
    places: list[tuple[str, ...]],
    profiles: Mapping[int, Profile],
) -> flow_schedulers.Sharing:
    """What ``system`` tells every job; raises `RequestError`."""
    if system.flow_scheduler is None:
        return systems.take_turns(system, len(asked))
    share = payload_share(next(iter(bottlenecks.values())).mtu)

    def profile(number: int) -> flow_schedulers.Demand:
        one, hosts = asked[number], places[number]
        if one.trace is None:
            return flow_schedulers.Demand(None, {}, 0)
        ways = [crossing for a, b in one.flows for crossing in bounds.crossed(topo, bottlenecks, hosts[a], hosts[b])]
        if any(len(stage) > 1 for stage in ways):
            return flow_schedulers.Demand(None, None, max(_sent(one)))

        def bits(payload: dict[Flow, int]) -> dict[str, float]:
            loads = bounds.loads(payload, hosts, topo, bottlenecks)
            return {name: size * 8 / share for name, size in loads.items()}

        measured = profiles.get(number)
        demand = profiled(one.trace, one.rounds, bits, capacity, max(_sent(one)), measured)
        return replace(demand, iterations=one.job.iterations or 0)

    capacity = {name: float(link.rate_bps) for name, link in bottlenecks.items()}
    return systems.share(system, [profile(number) for number in range(len(asked))], capacity)


def _sent(asked: _Asked) -> tuple[int, ...]:
    """Payload bytes each rank sends in one iteration."""
    sent = [0] * asked.workers
    for op in asked.exchanges:
        for one in asked.rounds(op):
            for (source, _), size in one.items():
                sent[source] += size
    return tuple(sent)


def _numeric(op: Operation, collective: str | None) -> Numeric:
    ranks = None if op.ranks is None else tuple(op.ranks)
    if op.kind == "compute":
        return Numeric(op.id, op.kind, tuple(op.after), ranks, duration_ns=int(op.duration or 0))
    size, algorithm = int(op.bytes or 0), traces.algorithm(op, collective)
    importance = (op.importance,) if isinstance(op.importance, float) else op.importance or ()
    return Numeric(
        op.id, op.kind, tuple(op.after), ranks, bytes=size, algorithm=algorithm, layer=op.layer or 0, importance=importance
    )  # fmt: skip


def _connections(asked: list[_Asked], places: list[tuple[str, ...]]) -> Iterator[tuple[str, str, int]]:
    """(source, target, how many) of every flow of every job."""
    for one, hosts in zip(asked, places, strict=True):
        for source, target in one.flows:
            yield hosts[source], hosts[target], one.job.channels or 1


def _offsets(spec: Spec, asked: list[_Asked], ideals: list[float | None], seed: int) -> list[int]:
    """When each job starts, in ns: as the job says, as given for all, or drawn from the seed."""
    if not spec.offsets.times:
        draw = random.Random(f"offsets {seed}")
        width = 1.0 if spec.offsets == "uniform" else OVERLAP
        drawn = [int(draw.uniform(0, width) * (1.0 if ideal is None else ideal) * 1e9) for ideal in ideals]
    else:
        drawn = [int(at) for at in spec.offsets.times]
        if len(drawn) != spec.jobs:
            raise RequestError(f"offsets: {len(drawn)} given for {spec.jobs} jobs; one each, as in 0ms,50ms")
    return [at if one.job.offset is None else int(one.job.offset) for one, at in zip(asked, drawn, strict=True)]

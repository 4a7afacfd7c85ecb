"""From a spec to plans: one plan is one run (one congestion control, one seed), fully numeric.

A plan is what a substrate carries into its Linux (as JSON) and what the manifest keeps.
"""

from __future__ import annotations

import hashlib
import itertools
import random
import shlex
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
from mininet.topo import Topo

import schedulers
import topologies
from testbed import congestion, scheduling
from testbed.congestion import CongestionControl
from testbed.errors import RequestError
from testbed.job import Job
from testbed.scheduling import Profile
from testbed.shaper import Marking
from testbed.spec import Spec, marking, payload_share, queue_bytes
from topologies.routed import path
from workloads import trace as traces
from workloads.collectives import Flow
from workloads.grid import Grid
from workloads.trace import Operation, Trace
from workloads.units import Duration, Rate, Size, UnitError, parse_fraction

ALONE_ITERATIONS = 10
NONE_YET = CongestionControl("", "", {})
NEED_MARKS = ("dctcp", "dcqcn")
OVERLAP = 0.05  # default start offsets: uniform in this share of the ideal iteration


class Link(msgspec.Struct, frozen=True):
    """How a bottleneck is shaped, and the MTU everywhere."""

    rate_bps: int
    buffer_bytes: int
    mtu: int
    acks_first: bool
    marking: Marking | None = None
    bands: int = 1  # of data, in strict priority


class Wire(msgspec.Struct, frozen=True):
    """What a link that is no bottleneck does to packets in one direction."""

    delay_ns: int
    jitter_ns: int
    loss: float


class JobPlan(msgspec.Struct, frozen=True):
    """One job: where its workers run and what they replay; times in ns, sizes in bytes."""

    job: int
    trace: str
    hosts: tuple[str, ...]
    cc: CongestionControl
    operations: tuple[dict[str, Any], ...]
    offset_ns: int
    noise: str
    seed: str
    ideal_s: float | None  # None: a real program, whose iteration nobody can compute
    bytes_per_worker: tuple[int, ...]  # payload each rank sends in one iteration; empty if unknown
    iterations: int  # that count
    channels: int = 1
    leave_ns: int | None = None  # departs so long after the start
    program: tuple[str, ...] | None = None  # a real program in place of a replay
    like: int = 0  # the first job that is the same in everything but its start and noise
    grid: Grid | None = None  # where its iterations may begin; None: anywhere
    bands: tuple[int, ...] = ()  # remaining bytes of an iteration at which a worker's packets move up a band


class Plan(msgspec.Struct, frozen=True):
    """One run."""

    version: int
    experiment: str
    cc: CongestionControl  # of every job; or what several of them are called together
    seed: int
    topology: str
    topology_args: tuple[int, ...]
    link: Link  # what the spec says of every bottleneck
    bottlenecks: dict[str, Link]  # what holds for each direction: "s1-s2"
    wires: dict[str, Wire]  # directions with delay or loss
    base_rtt_s: float  # of two small packets, idle, between the first job's first and last host
    jobs: tuple[JobPlan, ...]
    sample_ns: int
    rto_min_us: int | None
    alone: int | None = None  # the one job that runs, for `alone_s`
    measure_capacity: bool = False
    assumptions: tuple[str, ...] = ()  # of the trace: what in it is not measured
    needed_bps: int = 0  # what crosses the bottlenecks while every job communicates
    schedule: dict[str, Any] | None = None  # what a scheduler based its decisions on

    @property
    def ccs(self) -> list[CongestionControl]:
        """Those of its jobs, each once."""
        return list({job.cc.spec: job.cc for job in self.jobs}.values())

    @property
    def iterations(self) -> int:
        """Of the job that has most."""
        return max(job.iterations for job in self.jobs)

    @property
    def expected_s(self) -> float:
        """How long it takes if nothing gets in the way; a real program's iteration is taken for a second."""
        return max(
            job.iterations * (1.0 if job.ideal_s is None else job.ideal_s) + job.offset_ns / 1e9 for job in self.jobs
        )

    @property
    def folder(self) -> Path:
        """Where its results lie below the experiment's folder."""
        run = Path(self.cc.label, str(self.seed))
        return run if self.alone is None else Path("alone") / f"job{self.alone}" / run


def topology_of(spec: Spec) -> tuple[Topo, tuple[int, ...]]:
    """The spec's network, with the arguments its class was given."""
    name, *words = spec.topo.split(",")
    try:
        args = tuple(int(word) for word in words)
    except ValueError as error:
        raise RequestError(f"topo: {spec.topo!r}: the arguments of a topology are whole numbers") from error
    cls = topologies.find(name)
    try:
        if not args and hasattr(cls, "sized"):
            topo = cls.sized(spec.jobs, max(job.workers or 0 for job in spec.all_jobs))
            return topo, tuple(topo.arguments)
        return cls(*args), args
    except Exception as error:
        raise RequestError(f"topo: {spec.topo!r} cannot be made: {type(error).__name__}: {error}") from error


def plans(spec: Spec, profiles: Mapping[tuple[str, int], Profile] | None = None) -> list[Plan]:
    """Every run of the experiment, in order: for each seed each congestion control, then one job alone.

    A scheduler's runs come after those of its jobs alone, which are the profiles it needs: ``profiles`` holds those
    that have been measured, by congestion control and job. Without them it goes by the ideal iteration.
    """
    topo, args = topology_of(spec)
    link = _link(spec, {})
    bottlenecks, wires = _links(spec, topo)
    asked = [_Asked(job, None if job.program else job.read_trace().scaled(link.rate_bps)) for job in spec.all_jobs]
    places = place(topo, [one.workers for one in asked])
    decided = _decide(spec, asked, topo, bottlenecks, places, profiles or {})
    result: list[Plan] = []
    for seed in range(spec.seed, spec.seed + spec.seeds):
        jobs = _jobs(spec, asked, topo, bottlenecks, places, seed)
        for contender, schedule in decided:
            own = [
                congestion.on_link(congestion.parse(one.job.cc or decision.cc), link.rate_bps)
                for one, decision in zip(asked, schedule.decisions, strict=True)
            ]
            turns = tuple(congestion.on_link(cc, link.rate_bps) for cc in contender.turns)
            plan = Plan(
                version=1,
                experiment=spec.name or default_name(spec),
                cc=contender.cc if contender.policy else congestion.together(turns),
                seed=seed,
                topology=str(Path(spec.topo).resolve()) if spec.topo.endswith(".py") else spec.topo.split(",")[0],
                topology_args=args,
                link=link,
                bottlenecks=_banded(bottlenecks, schedule),
                wires=wires,
                base_rtt_s=_base_rtt_s(topo, places[0][0], places[0][-1], bottlenecks, wires),
                jobs=_alike(
                    msgspec.structs.replace(job, cc=cc, grid=decision.grid, bands=decision.bands)
                    for job, cc, decision in zip(jobs, own, schedule.decisions, strict=True)
                ),
                sample_ns=int(spec.sample),
                rto_min_us=None if spec.rto_min is None else int(spec.rto_min) // 1000,
                measure_capacity=not result,
                assumptions=tuple(dict.fromkeys(text for one in asked if one.trace for text in one.trace.assumptions)),
                needed_bps=sum(bottlenecks[f"{a}-{b}"].rate_bps for a, b in _directions(asked, topo, places)),
                schedule=schedule.report or None,
            )
            _check_marks(plan)
            alone = [_alone(plan, job) for job in plan.jobs if job.like == job.job]
            result += [*alone, plan] if contender.policy else [plan, *alone]
    return result


def _check_marks(plan: Plan) -> None:
    marks = any(link.marking for link in plan.bottlenecks.values())
    for cc in plan.ccs:
        if not marks and cc.name.removeprefix("mltcp_") in NEED_MARKS:
            raise RequestError(
                f"ecn: {cc.name} lives on marks, and no bottleneck marks: add --ecn on (for DCTCP), or "
                "--ecn 5kB,200kB,1% (DCQCN's published thresholds, for 40 Gbit/s and more)."
            )
    if marks and any(link.bands > 1 for link in plan.bottlenecks.values()):
        raise RequestError(f"ecn: {plan.cc.spec} serves bands of priority, which do not mark here: leave out --ecn.")


def _banded(links: dict[str, Link], schedule: schedulers.Schedule) -> dict[str, Link]:
    bands = 1 + max(len(decision.bands) for decision in schedule.decisions)
    return {name: msgspec.structs.replace(link, bands=bands) for name, link in links.items()}


@dataclass(frozen=True)
class _Asked:
    """A job, and the iteration it replays on this link; None: it is a real program."""

    job: Job
    trace: Trace | None

    @property
    def workers(self) -> int:
        return self.job.workers or 0

    def rounds(self, op: Operation) -> list[dict[Flow, int]]:
        return traces.rounds(op, self.workers, self.job.collective, self.job.channels or 1)

    @property
    def exchanges(self) -> list[Operation]:
        """Its collectives; a real program's are taken for an all-reduce over a ring."""
        if self.trace is None:
            return [Operation(id="all", kind="all_reduce", bytes=Size(self.workers))]
        return [op for op in self.trace.operations if op.kind != "compute"]


def _alike(jobs: Iterable[JobPlan]) -> tuple[JobPlan, ...]:
    """The jobs, each knowing the first one of its kind: that one alone speaks for all."""
    kinds: dict[Any, int] = {}
    return tuple(
        msgspec.structs.replace(
            job,
            like=kinds.setdefault(
                (str(job.operations), job.program, job.noise, job.channels, job.cc.spec, job.ideal_s, len(job.hosts)),
                job.job,
            ),
        )
        for job in jobs
    )


def _alone(plan: Plan, job: JobPlan) -> Plan:
    lone = msgspec.structs.replace(
        job, offset_ns=0, leave_ns=None, iterations=min(job.iterations, ALONE_ITERATIONS), grid=None
    )
    return msgspec.structs.replace(plan, alone=job.job, jobs=(lone,), measure_capacity=False, schedule=None)


_SHAPED, _PLAIN = ("rate", "buffer", "ecn"), ("delay", "jitter", "loss")


def _links(spec: Spec, topo: Topo) -> tuple[dict[str, Link], dict[str, Wire]]:
    """The directions that are shaped and those that delay or lose, by name."""
    bottlenecks: dict[str, Link] = {}
    wires: dict[str, Wire] = {}
    routers = {node for node in topo.nodes() if topo.nodeInfo(node).get("cls") is not None}
    for a, b, info in topo.links(sort=True, withInfo=True):
        shaped = bool(info.get("bottleneck"))
        own = {key: str(info[key]) for key in (*_SHAPED, *_PLAIN) if key in info}
        if stray := [key for key in own if key in (_PLAIN if shaped else _SHAPED)]:
            raise RequestError(
                f"topo: link {a}-{b} sets {', '.join(stray)}, which only "
                + ("a link that is no bottleneck can: one interface cannot shape and delay (put it on the next link)."
                   if shaped else "a bottleneck has.")
            )  # fmt: skip
        try:
            if shaped:
                bottlenecks[f"{a}-{b}"] = bottlenecks[f"{b}-{a}"] = _link(spec, own)
                continue
            for here, there in ((a, b), (b, a)):
                # What the experiment asks of every path happens once, on its last hop.
                if here in routers and (own or there not in routers):
                    wire = _wire(spec, own)
                    if wire != Wire(0, 0, 0.0):
                        wires[f"{here}-{there}"] = wire
        except UnitError as error:
            raise RequestError(f"topo: link {a}-{b}: {error}") from error
    return bottlenecks, wires


def _link(spec: Spec, own: dict[str, str]) -> Link:
    rate = int(Rate.parse(own["rate"])) if "rate" in own else int(spec.rate)
    buffer = queue_bytes(own.get("buffer", spec.buffer), rate)
    ecn = own.get("ecn", spec.ecn)
    return Link(rate, buffer, spec.mtu, spec.acks == "first", marking(ecn, rate, buffer) if ecn else None)


def _wire(spec: Spec, own: dict[str, str]) -> Wire:
    delay = Duration.parse(own["delay"]) if "delay" in own else spec.delay
    jitter = Duration.parse(own["jitter"]) if "jitter" in own else spec.jitter
    if jitter > delay:
        raise UnitError(f"the jitter {jitter} is more than the delay, {delay}")
    return Wire(int(delay), int(jitter), parse_fraction(own.get("loss", spec.loss)))


def _base_rtt_s(topo: Topo, first: str, last: str, bottlenecks: dict[str, Link], wires: dict[str, Wire]) -> float:
    """Serialisation of a small frame at each bottleneck, and every delay, there and back."""
    nodes = path(topo, first, last)
    total = 0.0
    for a, b in [*itertools.pairwise(nodes), *itertools.pairwise(nodes[::-1])]:
        if link := bottlenecks.get(f"{a}-{b}"):
            total += 60 * 8 / link.rate_bps
        if wire := wires.get(f"{a}-{b}"):
            total += wire.delay_ns / 1e9
    return total


def default_name(spec: Spec) -> str:
    """A folder name that tells experiments apart: topology, jobs, trace, and a hash of the rest."""
    rest = msgspec.structs.replace(spec, cc=(), seed=0, seeds=0, on="auto", wall_limit=None)
    digest = hashlib.sha256(msgspec.json.encode(rest, enc_hook=int)).hexdigest()
    trace = "mixed" if spec.job else Path(spec.trace).stem if spec.trace else "synthetic"
    return f"{Path(spec.topo).stem.replace(',', '-')}-{spec.jobs}x{trace}-{digest[:6]}"


def place(topo: Topo, workers: list[int]) -> list[tuple[str, ...]]:
    """Hosts of the workers of jobs with so many: the first half of a job at the topology's first edge, and so on.

    Hosts are grouped by the router they hang on; a job's ranks are spread over the
    groups in order, so that on a dumbbell its flows cross the bottleneck.
    """
    groups: dict[str, list[str]] = {}
    routers = {node for node in topo.nodes() if topo.nodeInfo(node).get("cls") is not None}
    for a, b in topo.links(sort=True):
        for host, router in ((a, b), (b, a)):
            if host not in routers and not topo.isSwitch(host):
                groups.setdefault(router, []).append(host)
    free = [list(hosts) for hosts in groups.values()]
    placed: list[tuple[str, ...]] = []
    for wanted in workers:
        hosts = []
        for rank in range(wanted):
            group = free[rank * len(free) // wanted] if free else []
            if not group:
                raise RequestError(
                    f"topo: {len(workers)} jobs of {'/'.join(map(str, sorted(set(workers))))} workers do not fit: "
                    f"{sum(len(hosts) for hosts in groups.values())} hosts, one worker each."
                )
            hosts.append(group.pop(0))
        placed.append(tuple(hosts))
    return placed


def _jobs(
    spec: Spec, asked: list[_Asked], topo: Topo, links: dict[str, Link], places: list[tuple[str, ...]], seed: int
) -> tuple[JobPlan, ...]:
    ideals = [
        None if one.trace is None else traces.critical_path_s(
            one.trace, lambda op, one=one, hosts=hosts: _exchange_s(one.rounds(op), hosts, topo, links)  # type: ignore[misc]
        )
        for one, hosts in zip(asked, places, strict=True)
    ]  # fmt: skip
    offsets = _offsets(spec, asked, ideals, seed)
    return tuple(
        JobPlan(
            job=number,
            trace=one.job.label if one.trace is None else one.trace.name,
            hosts=places[number],
            cc=NONE_YET,
            operations=tuple(_numeric(op, one.job.collective) for op in one.trace.operations) if one.trace else (),
            offset_ns=offsets[number],
            noise=one.job.noise or (one.trace.noise if one.trace else "0%"),
            seed=f"noise {seed} {number}",
            ideal_s=ideals[number],
            bytes_per_worker=_sent(one) if one.trace else (),
            iterations=one.job.iterations or 0,
            channels=one.job.channels or 1,
            leave_ns=None if one.job.leave is None else int(one.job.leave),
            program=one.job.program,
        )
        for number, one in enumerate(asked)
    )


def _decide(
    spec: Spec,
    asked: list[_Asked],
    topo: Topo,
    links: dict[str, Link],
    places: list[tuple[str, ...]],
    profiles: Mapping[tuple[str, int], Profile],
) -> list[tuple[scheduling.Contender, schedulers.Schedule]]:
    """What each contender of ``--cc`` tells every job; raises `RequestError`."""
    capacity = {name: float(link.rate_bps) for name, link in links.items()}

    def profile(one: _Asked, hosts: tuple[str, ...], measured: Profile | None) -> schedulers.Job:
        if one.trace is None:
            return schedulers.Job(None, {}, 0)

        def bits(payload: dict[Flow, int]) -> dict[str, float]:
            return {
                f"{a}-{b}": size * 8 / payload_share(links[f"{a}-{b}"].mtu)
                for (a, b), size in _crossings(payload, hosts, topo).items()
            }

        return scheduling.profile(one.trace, one.rounds, bits, capacity, max(_sent(one)), measured)

    return [
        (one, one.decide([
            profile(job, hosts, profiles.get((one.cc.spec, number)))
            for number, (job, hosts) in enumerate(zip(asked, places, strict=True))
        ], capacity))
        for one in map(scheduling.parse, spec.cc)
    ]  # fmt: skip


def _sent(asked: _Asked) -> tuple[int, ...]:
    """Payload bytes each rank sends in one iteration."""
    sent = [0] * asked.workers
    for op in asked.exchanges:
        for one in asked.rounds(op):
            for (source, _), size in one.items():
                sent[source] += size
    return tuple(sent)


def _numeric(op: Operation, collective: str | None) -> dict[str, Any]:
    fields: dict[str, Any] = {"id": op.id, "kind": op.kind, "after": list(op.after)}
    if op.ranks is not None:
        fields["ranks"] = list(op.ranks)
    if op.kind == "compute":
        fields["duration_ns"] = int(op.duration or 0)
    else:
        fields |= {"bytes": int(op.bytes or 0), "algorithm": traces.algorithm(op, collective)}
    return fields


def _crossings(payload: dict[Flow, int], hosts: tuple[str, ...], topo: Topo) -> dict[tuple[str, str], int]:
    """Payload that flows between a job's workers put on each direction of each bottleneck."""
    load: dict[tuple[str, str], int] = {}
    for (source, target), size in payload.items():
        for a, b in itertools.pairwise(path(topo, hosts[source], hosts[target])):
            if topo.linkInfo(a, b).get("bottleneck"):
                load[a, b] = load.get((a, b), 0) + size
    return load


def _exchange_s(rounds: list[dict[Flow, int]], hosts: tuple[str, ...], topo: Topo, links: dict[str, Link]) -> float:
    """A collective alone, in seconds: in each round every byte, headers included, at the rate of the busiest bottleneck."""
    total = 0.0
    for payload in rounds:
        times = [
            size / payload_share(links[f"{a}-{b}"].mtu) * 8 / links[f"{a}-{b}"].rate_bps
            for (a, b), size in _crossings(payload, hosts, topo).items()
        ]
        total += max(times, default=0.0)
    return total


def _directions(asked: list[_Asked], topo: Topo, places: list[tuple[str, ...]]) -> set[tuple[str, str]]:
    return {
        direction
        for one, hosts in zip(asked, places, strict=True)
        for op in one.exchanges
        for payload in one.rounds(op)
        for direction in _crossings(payload, hosts, topo)
    }


def _offsets(spec: Spec, asked: list[_Asked], ideals: list[float | None], seed: int) -> list[int]:
    """When each job starts, in ns: as the job says, as given for all, or drawn from the seed."""
    if spec.offsets in ("overlapped", "uniform"):
        draw = random.Random(f"offsets {seed}")
        width = 1.0 if spec.offsets == "uniform" else OVERLAP
        drawn = [int(draw.uniform(0, width) * (1.0 if ideal is None else ideal) * 1e9) for ideal in ideals]
    else:
        try:
            drawn = [int(Duration.parse(text)) for text in spec.offsets.split(",")]
        except UnitError as error:
            raise RequestError(f"offsets: {error}; or overlapped, or uniform") from error
        if len(drawn) != spec.jobs:
            raise RequestError(f"offsets: {len(drawn)} given for {spec.jobs} jobs; one each, as in 0ms,50ms")
    return [at if one.job.offset is None else int(one.job.offset) for one, at in zip(asked, drawn, strict=True)]


def describe(plan: Plan) -> Iterator[str]:
    """What the run will do, in order, for ``--dry-run``."""
    who = f"job {plan.alone} alone" if plan.alone is not None else f"{len(plan.jobs)} jobs"
    yield f"run {plan.cc.spec}, seed {plan.seed}: {who} → {plan.folder}"
    yield f"  network {plan.topology}{plan.topology_args}, in a namespace of its own; MTU {plan.link.mtu}, TSO/GSO/GRO off"
    if plan.measure_capacity:
        yield "  measure the capacity of the unshaped path (in real time only)"
    for name, link in plan.bottlenecks.items():
        yield (
            f"  shape {name}: {link.rate_bps} bit/s, buffer {link.buffer_bytes} B"
            + (", pure ACKs first" if link.acks_first else "")
            + (f", {link.bands} bands of priority" if link.bands > 1 else "")
            + (f", mark from {link.marking.min_bytes} B" if link.marking else "")
        )
    for name, wire in plan.wires.items():
        yield f"  {name}: delay {wire.delay_ns / 1e6:g} ms ± {wire.jitter_ns / 1e6:g} ms, loss {wire.loss:.4%}"
    for job in plan.jobs:
        yield (
            f"  job {job.job}: {job.trace} over {job.cc.spec} on {' '.join(job.hosts)}, starts at {job.offset_ns / 1e6:.3f} ms, "
            + (
                f"ideal iteration {job.ideal_s:.4f} s"
                if job.ideal_s is not None
                else "runs " + shlex.join(job.program or ())
            )
            + (f", leaves at {job.leave_ns / 1e9:g} s" if job.leave_ns is not None else "")
            + (
                f", iterations begin every {job.grid.period_ns / 1e9:.4f} s from {job.grid.phase_ns / 1e6:.3f} ms"
                if job.grid
                else ""
            )
        )
    for key, value in (plan.schedule or {}).items():
        yield f"  {plan.cc.name}: {key.replace('_', ' ')} {value}"
    counts = sorted({job.iterations for job in plan.jobs})
    yield f"  {' or '.join(map(str, counts))} iterations of every job, sampled every {plan.sample_ns / 1e6:g} ms"

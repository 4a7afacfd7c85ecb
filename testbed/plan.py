"""From a spec to plans: one plan is one run (one congestion control, one seed), fully numeric.

A plan is what a substrate carries into its Linux (as JSON) and what the manifest keeps.
"""

from __future__ import annotations

import hashlib
import itertools
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
from mininet.topo import Topo

import topologies
from testbed import congestion
from testbed.congestion import CongestionControl
from testbed.errors import RequestError
from testbed.shaper import Marking
from testbed.spec import Spec, marking, payload_share, queue_bytes
from topologies.routed import path
from workloads import trace as traces
from workloads.trace import ALGORITHMS, Operation, Trace
from workloads.units import Duration, Rate, UnitError, parse_fraction

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
    noise: float
    seed: str
    ideal_s: float
    bytes_per_worker: tuple[int, ...]  # payload each rank sends in one iteration


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
    iterations: int
    sample_ns: int
    rto_min_us: int | None
    alone: int | None = None  # the one job that runs, for `alone_s`
    measure_capacity: bool = False
    assumptions: tuple[str, ...] = ()  # of the trace: what in it is not measured
    needed_bps: int = 0  # what crosses the bottlenecks while every job communicates

    @property
    def ccs(self) -> list[CongestionControl]:
        """Those of its jobs, each once."""
        return list({job.cc.spec: job.cc for job in self.jobs}.values())

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
            topo = cls.sized(spec.jobs, spec.workers)
            return topo, tuple(topo.arguments)
        return cls(*args), args
    except Exception as error:
        raise RequestError(f"topo: {spec.topo!r} cannot be made: {type(error).__name__}: {error}") from error


def plans(spec: Spec) -> list[Plan]:
    """Every run of the experiment, in order: for each seed each congestion control, then one job alone."""
    topo, args = topology_of(spec)
    link = _link(spec, {})
    ccs = [tuple(congestion.on_link(one, link.rate_bps) for one in congestion.parse_all(spec_)) for spec_ in spec.cc]
    bottlenecks, wires = _links(spec, topo)
    if not any(one.marking for one in bottlenecks.values()):
        for cc in (one for takes_turns in ccs for one in takes_turns):
            if cc.name.removeprefix("mltcp_") in NEED_MARKS:
                raise RequestError(
                    f"ecn: {cc.name} lives on marks, and no bottleneck marks: add --ecn on (for DCTCP), or "
                    "--ecn 5kB,200kB,1% (DCQCN's published thresholds, for 40 Gbit/s and more)."
                )
    trace = spec.one_trace.scaled(link.rate_bps)
    places = place(topo, spec.jobs, spec.workers)
    result: list[Plan] = []
    for seed in range(spec.seed, spec.seed + spec.seeds):
        jobs = _jobs(spec, trace, topo, bottlenecks, places, seed)
        for takes_turns in ccs:
            plan = Plan(
                version=1,
                experiment=spec.name or default_name(spec),
                cc=congestion.together(takes_turns),
                seed=seed,
                topology=str(Path(spec.topo).resolve()) if spec.topo.endswith(".py") else spec.topo.split(",")[0],
                topology_args=args,
                link=link,
                bottlenecks=bottlenecks,
                wires=wires,
                base_rtt_s=_base_rtt_s(topo, places[0][0], places[0][-1], bottlenecks, wires),
                jobs=tuple(msgspec.structs.replace(job, cc=takes_turns[job.job % len(takes_turns)]) for job in jobs),
                iterations=spec.iterations,
                sample_ns=int(spec.sample),
                rto_min_us=None if spec.rto_min is None else int(spec.rto_min) // 1000,
                measure_capacity=not result,
                assumptions=trace.assumptions,
                needed_bps=sum(bottlenecks[f"{a}-{b}"].rate_bps for a, b in _directions(trace, topo, places)),
            )
            # Jobs are alike, so that one of them alone speaks for all.
            alone = msgspec.structs.replace(
                plan,
                alone=0,
                jobs=(msgspec.structs.replace(plan.jobs[0], offset_ns=0),),
                iterations=min(spec.iterations, ALONE_ITERATIONS),
                measure_capacity=False,
            )
            result += [plan, alone]
    return result


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
    trace = Path(spec.trace).stem if spec.trace else "synthetic"
    return f"{Path(spec.topo).stem.replace(',', '-')}-{spec.jobs}x{trace}-{digest[:6]}"


def place(topo: Topo, jobs: int, workers: int) -> list[tuple[str, ...]]:
    """Hosts of each job's workers: the first half of a job at the topology's first edge, and so on.

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
    for _ in range(jobs):
        hosts = []
        for rank in range(workers):
            group = free[rank * len(free) // workers] if free else []
            if not group:
                raise RequestError(
                    f"topo: {jobs} jobs of {workers} workers do not fit: "
                    f"{sum(len(hosts) for hosts in groups.values())} hosts, one worker each."
                )
            hosts.append(group.pop(0))
        placed.append(tuple(hosts))
    return placed


def _jobs(
    spec: Spec, trace: Trace, topo: Topo, links: dict[str, Link], places: list[tuple[str, ...]], seed: int
) -> tuple[JobPlan, ...]:
    operations = tuple(_numeric(op) for op in trace.operations)
    ideals = [
        traces.critical_path_s(trace, lambda op, hosts=hosts: _exchange_s(op, hosts, topo, links))  # type: ignore[misc]
        for hosts in places
    ]
    offsets = _offsets(spec, ideals, seed)
    sent = [0] * spec.workers
    for op in trace.operations:
        if op.kind != "compute":
            for (source, _), size in traces.payload_bytes(op, spec.workers).items():
                sent[source] += size
    return tuple(
        JobPlan(
            job=job,
            trace=trace.name,
            hosts=hosts,
            cc=NONE_YET,
            operations=operations,
            offset_ns=offsets[job],
            noise=spec.noise_fraction,
            seed=f"noise {seed} {job}",
            ideal_s=ideals[job],
            bytes_per_worker=tuple(sent),
        )
        for job, hosts in enumerate(places)
    )


def _numeric(op: Operation) -> dict[str, Any]:
    fields: dict[str, Any] = {"id": op.id, "kind": op.kind, "after": list(op.after)}
    if op.ranks is not None:
        fields["ranks"] = list(op.ranks)
    if op.kind == "compute":
        fields["duration_ns"] = int(op.duration or 0)
    else:
        fields |= {"bytes": int(op.bytes or 0), "algorithm": ALGORITHMS[op.kind]}
    return fields


def _crossings(op: Operation, hosts: tuple[str, ...], topo: Topo) -> dict[tuple[str, str], int]:
    """Payload one collective puts on each direction of each bottleneck."""
    load: dict[tuple[str, str], int] = {}
    for (source, target), size in traces.payload_bytes(op, len(hosts)).items():
        nodes = path(topo, hosts[source], hosts[target])
        for a, b in itertools.pairwise(nodes):
            if topo.linkInfo(a, b).get("bottleneck"):
                load[a, b] = load.get((a, b), 0) + size
    return load


def _exchange_s(op: Operation, hosts: tuple[str, ...], topo: Topo, links: dict[str, Link]) -> float:
    """A collective alone, in seconds: every byte, headers included, at the rate of the busiest bottleneck."""
    times = [
        size / payload_share(links[f"{a}-{b}"].mtu) * 8 / links[f"{a}-{b}"].rate_bps
        for (a, b), size in _crossings(op, hosts, topo).items()
    ]
    return max(times, default=0.0)


def _directions(trace: Trace, topo: Topo, places: list[tuple[str, ...]]) -> set[tuple[str, str]]:
    return {
        direction
        for op in trace.operations
        if op.kind != "compute"
        for hosts in places
        for direction in _crossings(op, hosts, topo)
    }


def _offsets(spec: Spec, ideals: list[float], seed: int) -> list[int]:
    """When each job starts, in ns: drawn from the seed, or as given."""
    if spec.offsets in ("overlapped", "uniform"):
        draw = random.Random(f"offsets {seed}")
        width = 1.0 if spec.offsets == "uniform" else OVERLAP
        return [int(draw.uniform(0, width) * ideal * 1e9) for ideal in ideals]
    try:
        given = [int(Duration.parse(text)) for text in spec.offsets.split(",")]
    except UnitError as error:
        raise RequestError(f"offsets: {error}; or overlapped, or uniform") from error
    if len(given) != spec.jobs:
        raise RequestError(f"offsets: {len(given)} given for {spec.jobs} jobs; one each, as in 0ms,50ms")
    return given


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
            + (f", mark from {link.marking.min_bytes} B" if link.marking else "")
        )
    for name, wire in plan.wires.items():
        yield f"  {name}: delay {wire.delay_ns / 1e6:g} ms ± {wire.jitter_ns / 1e6:g} ms, loss {wire.loss:.4%}"
    for job in plan.jobs:
        yield (
            f"  job {job.job}: {job.trace} over {job.cc.spec} on {' '.join(job.hosts)}, starts at {job.offset_ns / 1e6:.3f} ms, "
            f"ideal iteration {job.ideal_s:.4f} s"
        )
    yield f"  {plan.iterations} iterations of every job, sampled every {plan.sample_ns / 1e6:g} ms"

"""Resolve a spec to plans: one plan is one run (one system, one seed), with only numbers and names.

A backend passes the plan to its Linux as JSON, and the manifest keeps it.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import msgspec

from testbed import transports
from testbed.congestion import catalogue
from testbed.core import builtin_transport
from testbed.core.errors import RequestError
from testbed.core.runs import isolated
from testbed.core.runs.format_version import VERSION
from testbed.core.runs.manifest import Asked
from testbed.core.runs.plan import CongestionControl, JobPlan, Plan, System
from testbed.models import bounds
from testbed.models.contention import Model
from testbed.models.frames import payload_share
from testbed.networks import spraying
from testbed.planning import background, captures, jobs, links, names
from testbed.planning.jobs import ALONE_ITERATIONS, Placed, Way
from testbed.planning.links import Network
from testbed.planning.profiles import Profile
from testbed.planning.profiles import profile as profiled
from testbed.replay import training
from testbed.schedulers import flow
from testbed.spec import Spec, systems
from testbed.spec.relative_quantities import PriorityQueues
from testbed.transports import Flow


@dataclass(frozen=True)
class Scenario:
    """An experiment, resolved: its network and its jobs are computed once, and every plan follows from them."""

    spec: Spec
    network: Network
    systems: list[System]
    placed: list[Placed]

    @cached_property
    def experiment(self) -> str:
        """Return the name of the experiment, which is that of its folder."""
        return self.spec.name or names.default_name(self.spec)

    @cached_property
    def asked(self) -> Asked:
        """The requested experiment, without its name and seeds."""
        return names.asked(self.spec, self.spec.on)

    def under(self, spec: Spec) -> Scenario:
        """Return the same network and jobs under ``spec``, which may differ only in systems, name and isolated runs."""
        return replace(self, spec=spec, systems=[systems.parse(label) for label in spec.system])


def resolve(spec: Spec, model: Model | None = None) -> Scenario:
    """Return network and jobs of an experiment, for every seed. Raises `RequestError`.

    ``model``: the model by which a job scheduler assigns GPUs; None: equation 8 of SJF-BCO with the link's rate.
    """
    wanted = jobs.asked(spec)
    jobs.check_size(wanted, spec)
    network = links.network(spec)
    model = model or Model(
        float(spec.rate), math.inf if spec.intra_server_rate is None else float(spec.intra_server_rate)
    )
    every = itertools.product(spec.scheduler, range(spec.seed, spec.seed + spec.seeds))
    placed = [
        jobs.placed(spec, jobs.ordered(spec, wanted, seed), network, scheduler, seed, model)
        for scheduler, seed in every
    ]
    return Scenario(spec, network, [systems.parse(label) for label in spec.system], placed)


def plans(scenario: Scenario, kept: Sequence[Isolated] = ()) -> list[Plan]:
    """Return every run of the experiment, in order: for each job scheduler and seed, each system, then its isolated jobs.

    The runs of a flow scheduler come after the isolated ones, which provide the profiles (`replan`); here it uses the ideal
    iteration. A ``kept`` isolated run replaces a new one if it is equivalent.
    """
    result: list[Plan] = []
    there = list(kept)
    for placed in scenario.placed:
        for system in scenario.systems:
            plan = _plan(scenario, placed, system, {})
            plan = msgspec.structs.replace(plan, measure_capacity=not result)
            wanted = _isolated(scenario.spec, plan, placed.ways, there)
            there += wanted
            alone = [one.plan for one in wanted]
            result += [*alone, plan] if system.flow_scheduler else [plan, *alone]
    return result


@dataclass(frozen=True)
class Isolated:
    """An isolated run, and the network as seen by its job."""

    plan: Plan
    way: Way

    def serves(self, plan: Plan, job: JobPlan, way: Way) -> bool:
        """Return True if this run gives the isolated time of ``job`` in ``plan``; with another seed only if paths are
        not random."""
        if self.way != way or self.plan.scheduler_folder != plan.scheduler_folder:
            return False
        return (self.plan.seed == plan.seed or not _by_chance(way)) and isolated.serves(self.plan, plan, job)


def _by_chance(way: Way) -> bool:
    """Whether a hash decides how fast a job in isolation is: whether its flows meet, or which of unlike links one takes."""
    return any(isinstance(stage, str) or len(set(stage)) > 1 for stage in way)


def _isolated(spec: Spec, plan: Plan, ways: list[Way], there: list[Isolated]) -> list[Isolated]:
    """The isolated runs that are needed in addition to those that are ``there``: at most one for each kind of job."""
    kinds = [(job, way) for job, way in zip(plan.jobs, ways, strict=True) if job.like == job.job]
    if spec.isolated_runs == "none" or (spec.isolated_runs == "first" and plan.seed != spec.seed):
        kinds = kinds if plan.system.flow_scheduler is not None and not spec.lives else []
    elif spec.isolated_runs not in ("each", "first"):
        # A scheduler with a clock uses separate isolated runs with its own seed.
        timed, itself = any(job.grid for job in plan.jobs), isolated.is_its_own(plan)
        missing = [not itself and not any(one.serves(plan, job, way) for one in there) for job, way in kinds]
        kinds = [kind for kind, lacks in zip(kinds, missing, strict=True) if timed or lacks]
    return [Isolated(_alone(plan, job), way) for job, way in kinds]


def isolated_runs(scenario: Scenario, plans: Sequence[Plan]) -> list[Isolated]:
    """The isolated runs among an experiment's ``plans``, each with the network of its job."""
    ways: dict[tuple[int, str | None], list[Way]] = {(one.seed, one.scheduler): one.ways for one in scenario.placed}
    return [Isolated(one, ways[one.seed, one.scheduler][one.alone]) for one in plans if one.alone is not None]


Planned = tuple[Scenario, list[Plan]]


def planned(spec: Spec, model: Model | None = None) -> Planned:
    """An experiment, resolved, and its plans."""
    scenario = resolve(spec, model)
    return scenario, plans(scenario)


def renamed(resolved: Planned, name: str) -> Planned:
    """An experiment with another name, and its plans."""
    scenario, own = resolved
    spec = msgspec.structs.replace(scenario.spec, name=name)
    return replace(scenario, spec=spec), [msgspec.structs.replace(plan, experiment=name) for plan in own]


def plan_seed(scenario: Scenario, seed: int) -> Planned:
    """Return the same experiment with one other seed, and its plans."""
    return planned(msgspec.structs.replace(scenario.spec, seed=seed, seeds=1))


def replan(scenario: Scenario, plan: Plan, profiles: Mapping[int, Profile]) -> Plan:
    """``plan`` after its flow scheduler has received what each job's iterations took in isolation, by job."""
    placed = next(one for one in scenario.placed if (one.seed, one.scheduler) == (plan.seed, plan.scheduler))
    system = next(system for system in scenario.systems if system.label == plan.system.label)
    again = _plan(scenario, placed, system, profiles)
    return msgspec.structs.replace(again, measure_capacity=plan.measure_capacity)


def _plan(scenario: Scenario, placed: Placed, system: System, profiles: Mapping[int, Profile]) -> Plan:
    spec, network, link = scenario.spec, scenario.network, scenario.network.link
    sharing = _schedule(system, placed, network, profiles)
    if spec.lives and any(rule.grid for rule in sharing.rules):
        raise RequestError(
            f"system: {system.label} shifts jobs that start together, but jobs that request GPUs wait for others. "
            "Leave it out, or give jobs `workers` instead of `gpus`."
        )
    _check_windows(system, placed, sharing)
    _check_trainings(system, placed)
    wanted = _bands(scenario, placed, system)
    ranks = 1 + max(len(rule.bands) for rule in sharing.rules)
    paths, hashed = _paths(network, placed, system)
    at_hosts = max(wanted.data, ranks if any(job.window is not None for job in placed.jobs) else 1)

    def control(text: str) -> CongestionControl:
        return catalogue.on_link(catalogue.parse(text, spec.preset), link.rate_bps)

    own = [
        msgspec.structs.replace(
            job,
            cc=control(asked.job.cc or asked.by_tcp or rule.cc),
            grid=rule.grid,
            bands=rule.bands,
            falls=rule.falls,
            channels=1 + len(rule.bands) if rule.bands and job.window is not None else job.channels,
            exclusive=rule.exclusive,
            transport=asked.transport(system),
        )
        for job, asked, rule in zip(placed.jobs, placed.asked, sharing.rules, strict=True)
    ]
    traffic = background.sources(spec, network.topo, network.bottlenecks, placed.seed)
    plan = Plan(
        version=VERSION,
        experiment=scenario.experiment,
        system=msgspec.structs.replace(system, congestion=tuple(control(one.spec) for one in system.congestion)),
        seed=placed.seed,
        topology=str(Path(spec.topo).resolve()) if spec.topo.endswith(".py") else spec.topo.split(",")[0],
        topology_args=network.topology_args,
        link=link,
        bottlenecks=links.banded(network.bottlenecks, wanted, ranks),
        wires=network.wires,
        base_rtt_s=placed.base_rtt_s,
        jobs=_with_their_kinds(own, placed.ways),
        sample_ns=int(spec.sample_interval),
        events=network.events,
        rto_min_us=None if spec.rto_min is None else int(spec.rto_min) // 1000,
        assumptions=tuple(
            dict.fromkeys(text for asked in placed.asked if asked.trace for text in asked.trace.assumptions)
        ),
        notes=(
            *placed.notes,
            *background.notes(
                traffic, payload_share(spec.mtu) * min(one.rate_bps for one in network.bottlenecks.values())
            ),
        ),
        needed_bps=placed.needed_bps,
        in_a_row=placed.in_a_row,
        multipath=network.multipath,
        paths=paths,
        paths_hashed=hashed,
        sender=msgspec.structs.replace(network.sender, bands=at_hosts),
        nics=network.nics,
        schedule=sharing.report or None,
        scheduler=placed.scheduler,
        messages="full" if spec.message_log == "per-message" else "rounds",
        stop_when_periodic=spec.stop_when_periodic,
        crossed=len(spec.scheduler) > 1,
        servers=placed.servers,
        nics_per_server=spec.nics,
        background=traffic,
    )
    plan = msgspec.structs.replace(plan, capture=captures.captured(spec, network.topo, plan))
    _check_marks(plan)
    return plan if _may_repeat(plan, placed.asked) else msgspec.structs.replace(plan, stop_when_periodic=0)


def _may_repeat(plan: Plan, asked: Iterable[jobs.Asked]) -> bool:
    """Return True if nothing is random, and neither the network nor the jobs change during the run."""
    chance = any(wire.jitter_ns or wire.loss or wire.corrupt or wire.burst for wire in plan.wires.values())
    noisy = any(one.varies for one in asked)
    changes = (
        bool(plan.events or plan.background)
        or plan.traced
        or plan.lives
        or any(job.leave_ns is not None for job in plan.jobs)
    )
    others = any(
        job.program
        or job.groups
        or job.overlaps
        or job.window is not None
        or not builtin_transport.plain(job.transport)
        for job in plan.jobs
    )
    return not (chance or noisy or changes or others)


def _check_marks(plan: Plan) -> None:
    uses_ecn = any(link.marks for link in plan.bottlenecks.values())
    for cc in plan.ccs:
        if not uses_ecn and cc.traits.needs_marks:
            raise RequestError(
                f"ecn: {cc.name} requires ECN, but no bottleneck marks packets. Remove `--ecn off`. "
                "(For DCQCN at 40 Gbit/s or more, use its published thresholds: `--ecn 5kB,200kB,1%`.)"
            )


def _paths(network: Network, placed: Placed, system: System) -> tuple[int, bool]:
    """The number of addresses of each host, one for each path if a transport sprays (option ``sprays``); and whether paths are hashed instead."""
    sprays = [one.options for one in _transports(placed, system) if one.options.sprays]
    if not sprays:
        return 1, False
    if any(event.up is not None for event in network.events):
        raise RequestError(
            "event: a spraying transport would still send over a link that fails. Leave out the event, or the spraying."
        )
    count, hashes = spraying.paths(network.topo), {one.hashes for one in sprays}
    if len(hashes) > 1:
        raise RequestError("transports need different host addresses for spraying. Give all of them the same spray=…")
    (hashed,) = hashes
    return (hashed, True) if hashed and count > 1 else (count, False)


def _check_windows(system: System, placed: Placed, sharing: flow.Sharing) -> None:
    """Raises `RequestError` if exchanges overlap where a scheduler allows only one after the other."""
    for job, asked, rule in zip(placed.jobs, placed.asked, sharing.rules, strict=True):
        if job.groups and rule.exclusive:
            raise RequestError(
                f"job {job.job} ({job.trace}) has different ranks or several groups, but {system.label} waits until all ranks of a job are "
                "ready, which never happens here. Leave out preempt=no."
            )
        in_turn = rule.grid or rule.exclusive or (rule.bands and job.window is None)
        if (job.window is not None or job.overlaps) and in_turn:
            raise RequestError(
                f"job {job.job} ({job.trace}) overlaps several exchanges or iterations, but {system.label} schedules one after the "
                "other. Leave out --credit-bytes, choose another trace, or leave out the scheduler."
            )
        how = asked.transport(system)
        if rule.bands and not builtin_transport.by_kernel(how):
            raise RequestError(
                f"job {job.job} ({job.trace}): {how} sets priority queues itself, and so does {system.label}. Leave out one of them."
            )
        if (
            job.window is not None
            and builtin_transport.by_kernel(how)
            and transports.parse(how).options.early_close < 1
        ):
            raise RequestError(
                f"job {job.job} ({job.trace}): with credit, TCP cannot stop in the middle of a message. Leave out credit_bytes, or use "
                "send_fraction instead of early_close."
            )


def _check_trainings(system: System, placed: Placed) -> None:
    """Raises `RequestError` where a job that trains cannot use its transport's option for missing or complete data."""
    for job, asked in zip(placed.jobs, placed.asked, strict=True):
        if not asked.job.train:
            continue
        how = transports.parse(asked.transport(system))
        missing = how.close("gradient").missing
        rings, disperses = asked.job.collective == "ring", training.parse(asked.job.train).options.hadamard
        if disperses and missing != "zero":
            raise RequestError(
                f"job {job.job} trains {asked.job.train}, but hadamard=on mixes gradients anew each round, so values of the last round cannot "
                "fill missing ranges. Leave out hadamard=on, or fill=local."
            )
        if rings and missing != "zero":
            raise RequestError(
                f"job {job.job} trains {asked.job.train} in a ring, which adds received gradients to the local ones. "
                f"Missing ranges can only count as zero. Leave out fill={missing}, or give the job --collective parameter_server."
            )
        resyncs: int = how.options.sync_every
        if disperses and rings and resyncs:
            raise RequestError(
                f"job {job.job} trains {asked.job.train} in a ring, where Hadamard-transformed sums cannot replace parameters. Leave out "
                "hadamard=on, or sync_every."
            )


def _bands(scenario: Scenario, placed: Placed, system: System) -> PriorityQueues:
    """Return the priority queues of every switch: as requested, else as a transport requires."""
    if scenario.spec.priority_queues != "1":
        return scenario.spec.priority_queues
    texts = {str(way.options.bands) for way in _transports(placed, system)}
    if len(texts) > 1:
        raise RequestError(
            f"transports need different priority queues at switches: {', '.join(sorted(texts))}. Choose with --priority-queues."
        )
    (found,) = map(PriorityQueues, texts)
    if found.drops and not all(link.ecn_threshold for link in scenario.network.bottlenecks.values()):
        raise RequestError(
            f"{system.label} needs priority queues that drop above the ECN threshold, but ECN is off. Remove --ecn off."
        )
    return found


def _transports(placed: Placed, system: System) -> list[transports.Transport]:
    return [transports.parse(one.transport(system)) for one in placed.asked]


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
                    job.trains,
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


def _alone(plan: Plan, job: JobPlan) -> Plan:
    life = None if job.life is None else msgspec.structs.replace(job.life, arrival_ns=0, at_ns=0, after=())
    lone = msgspec.structs.replace(
        job, offset_ns=0, leave_ns=None, iterations=min(job.iterations, ALONE_ITERATIONS), grid=None, life=life
    )
    # Link events are ignored: `isolated_s` is a job's time on the initial network.
    return msgspec.structs.replace(
        plan, alone=job.job, jobs=(lone,), measure_capacity=False, schedule=None, events=(), background=(), capture=None
    )


def _schedule(system: System, placed: Placed, network: Network, profiles: Mapping[int, Profile]) -> flow.Sharing:
    """The settings that ``system`` gives every job; raises `RequestError`."""
    if system.flow_scheduler is None:
        return systems.take_turns(system, len(placed.asked))
    share = payload_share(network.link.mtu)
    nics = {name: network.limited[name] for name in network.nics}
    capacity = {name: float(link.rate_bps) for name, link in network.bottlenecks.items()}

    def profile(number: int) -> flow.Demand:
        one, job, measured = placed.asked[number], placed.jobs[number], profiles.get(number)
        if one.trace is None:
            return flow.Demand(None, {}, 0)
        stages = dict(zip(one.flows, placed.crossed[number], strict=True))
        tensor = None if job.window is None else one.largest
        if any(len(stage) > 1 for way in stages.values() for stage in way):
            lasts_s = measured.iteration_s if measured else job.ideal_s
            return flow.Demand(lasts_s, None, max(one.sent), iterations=job.iterations, tensor_bytes=tensor)

        def bits(payload: dict[Flow, int]) -> dict[str, float]:
            return {name: size * 8 / share for name, size in bounds.loads(payload, stages).items()}

        def by_nics_s(payload: dict[Flow, int]) -> float:
            return bounds.loaded_s([payload], job.hosts, network.topo, nics)

        demand = profiled(one.exchanges, one.timeline, one.rounds, bits, capacity, max(one.sent), measured, by_nics_s)
        return replace(demand, iterations=job.iterations, tensor_bytes=tensor)

    return systems.share(system, [profile(number) for number in range(len(placed.asked))], capacity)

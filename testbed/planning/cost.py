"""The cost of a run: packets, messages, processes and seconds of its clock, and the wall time that follows.

The constants are processor times on one core of a small virtual machine at rest (`benchmarks/estimates.py` compares them with
runs). What another machine takes longer is one factor, learned from its runs (`testbed.backends.pace`).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from testbed import networks
from testbed.core.runs.plan import JobPlan, Operation, Plan
from testbed.models.frames import frame, payload_share
from testbed.networks.routed import RoutedTopo, stages
from testbed.replay import flows as replayed
from testbed.replay import ring
from testbed.spec import backend_names
from testbed.traces import collectives

COMMAND_S = 3.0  # seconds of `run` for imports, figures, and tables
# Under virtual time.
BOOT_S, WORKER_S = 0.9, 0.07
TICK_S = 60e-6  # each sample of a link or a connection
HOP_S = 1.0e-6  # seconds for each packet on each link of its path, with its share of ACKs,
MIXED_HOP_S = 4.0e-6  # and where a job has several flows at a time: fewer packets in a row are handled together
DATAGRAM_S = 38e-6  # each packet that a process makes and reads itself
MESSAGE_S = 800e-6  # each message of a worker
# As flows.
MODEL_S, EVENT_S, SAMPLE_S = 0.2, 150e-6, 8e-6
INTERPRETED_S, COMPILING_S, COMPILED = 5.0, 25.0, 1 / 40  # `testbed.models.compiled`
STEPS = 16  # of MLTCP's force in an iteration
REAL_S = 4.0  # on a real clock: seconds of a run in addition to its iterations
CROWDED = 1.2  # factor by which iterations of several jobs exceed the ideal


@dataclass(frozen=True)
class Cost:
    """The elements of a run that take time."""

    clock_s: float  # of the run's own clock
    workers: int
    samples: int  # of links and connections
    hops: float  # packets, each counted once for each link that it crosses: of jobs with one flow each way,
    mixed_hops: float  # and of jobs with more
    datagrams: float  # packets that are not TCP's, each counted once
    messages: float  # that workers send and receive
    events: float  # of the flow-level simulator


def cost(plan: Plan) -> Cost:
    """The elements of ``plan`` that take time."""
    clock_s = plan.expected_s * (CROWDED if len(plan.jobs) > 1 else 1.0)
    hops = mixed_hops = datagrams = messages = events = 0.0
    connections = 0
    for job in plan.jobs:
        iterations = _iterations(plan, job)
        payload = frame(plan.link.mtu) * payload_share(plan.link.mtu)
        carried = iterations * sum(job.bytes_per_worker) / payload
        crossed = carried * _links(plan, job)
        if len(job.hosts) > 2 or job.channels > 1:
            mixed_hops += crossed
        else:
            hops += crossed
        datagrams += 0.0 if job.by_tcp else carried
        flows, sent = _exchanges(job)
        messages += iterations * sent
        events += iterations * (len(job.operations) + flows * (STEPS if job.cc.traits.learns else 1))
        connections += job.channels * len(job.hosts) * min(2, len(job.hosts) - 1)
    samples = int(clock_s * 1e9 / plan.sample_ns) * (len(plan.bottlenecks) + connections)
    workers = sum(len(job.hosts) for job in plan.jobs)
    return Cost(clock_s, workers, samples, hops, mixed_hops, datagrams, messages, events)


def usual_s(plan: Plan, backend: str) -> float:
    """Wall seconds that ``plan`` takes on ``backend`` on the machine of this module's constants, at rest."""
    found = cost(plan)
    if backend_names.is_computed(backend):
        loops_s = found.events * EVENT_S
        if loops_s > INTERPRETED_S:
            loops_s = INTERPRETED_S + COMPILING_S + (loops_s - INTERPRETED_S) * COMPILED
        return MODEL_S + loops_s + found.samples * SAMPLE_S
    if backend_names.in_real_time(backend):
        return REAL_S + found.clock_s
    return (
        BOOT_S + WORKER_S * found.workers + TICK_S * found.samples + HOP_S * found.hops + MIXED_HOP_S * found.mixed_hops
        + DATAGRAM_S * found.datagrams + MESSAGE_S * found.messages
    )  # fmt: skip


def _iterations(plan: Plan, job: JobPlan) -> float:
    """Return how many iterations a job runs: until every job has finished its own, or until it leaves."""
    if job.life is not None or not job.ideal_s:
        return job.iterations
    stays_s = plan.expected_s - job.offset_ns / 1e9
    if job.leave_ns is not None:
        stays_s = min(stays_s, job.leave_ns / 1e9)
        return stays_s / job.ideal_s
    return max(job.iterations, stays_s / job.ideal_s)


def _exchanges(job: JobPlan) -> tuple[int, int]:
    """Flows and messages of an iteration."""
    flows = messages = 0
    for operation in job.exchanges:
        if operation.members is None:
            count, sent = _rounds(operation.algorithm, len(job.hosts), operation.bytes or 0)
        else:
            count, sent = _in_group(operation, len(job.hosts))
        flows += count * job.channels
        messages += sent * job.channels
    return flows, messages


def _in_group(operation: Operation, hosts: int) -> tuple[int, int]:
    """The same of an exchange of a group."""
    rounds = [len(each) for each in replayed.rounds(operation, hosts, operation.bytes or 0)]
    if replayed.lockstep(operation):
        return len(rounds), sum(rounds) * ring.SLICES
    return sum(rounds), sum(rounds)


@cache
def _rounds(algorithm: str, hosts: int, size: int) -> tuple[int, int]:
    """Flows of a collective, where those of a ring count once a round, and messages of all hosts."""
    rounds = [len(each) for each in collectives.find(algorithm).rounds(hosts, size)]
    if algorithm in collectives.LOCKSTEP:
        return len(rounds), sum(rounds) * ring.SLICES
    return sum(rounds), sum(rounds)


def _links(plan: Plan, job: JobPlan) -> int:
    """Links from a job's first host to its last."""
    if len(set(job.hosts)) < 2:
        return 0
    return _stages(plan.topology, plan.topology_args, plan.nics_per_server, job.hosts[0], job.hosts[-1])


@cache
def _stages(name: str, arguments: tuple[int, ...], nics: int, source: str, target: str) -> int:
    topo = networks.made(name, arguments, nics)
    assert isinstance(topo, RoutedTopo)
    return len(stages(topo, source, target))

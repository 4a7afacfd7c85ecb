"""The plan of one run: one system, one seed, only numbers and names.

A backend passes it to its Linux as JSON, and the manifest keeps it.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any, Literal

import msgspec

from testbed.core import builtin_transport, system_text
from testbed.core.builtin_transport import TCP
from testbed.core.grid import Grid

Role = Literal["baseline", "treatment", "reference"]
RTO_MIN_MS = 200.0  # TCP_RTO_MIN of include/net/tcp.h
Clock = Literal["real", "virtual", "model"]  # of the backend of a run


class Traits(msgspec.Struct, frozen=True, omit_defaults=True):
    """Properties of a congestion control that other modules need."""

    needs_marks: bool = False  # it reacts to ECN marks, and is useless without ECN
    frame_by_frame: bool = False  # hosts pass single frames to the link, like a pacing NIC
    paced: bool = False  # it paces itself, so that queues fill and drain between samples
    learns: bool = False  # bytes and end of an iteration
    may_leave_idle: bool = False  # a link, at times: it reacts to delay, or to a rate that it measures
    state: str | None = None  # name of the eBPF map with the per-flow state


def _folder(name: str, typed: str, *, exact: bool) -> str:
    """Return ``name``, extended by a hash of ``typed`` unless ``exact`` (no options, no path)."""
    return name if exact else f"{name}-{hashlib.sha256(typed.encode()).hexdigest()[:8]}"


class CongestionControl(msgspec.Struct, frozen=True):
    """A requested congestion control; ``constants``: the parameters of its program or module."""

    spec: str
    name: str
    constants: dict[str, int]
    source: str | None = None  # the path of a custom algorithm's file
    role: Role = "baseline"
    base: str | None = None  # the congestion control that it modifies
    traits: Traits = Traits()
    preset: str | None = None  # preset of its parameters, if any

    @property
    def is_mltcp(self) -> bool:
        """Return True if it learns iterations and favours flows by them; with slope 0, its factor F is constant."""
        return self.traits.learns and self.constants.get("slope") != 0

    @property
    def folder(self) -> str:
        """The folder for its custom files that go with a run to another machine."""
        return _folder(self.name, self.spec, exact=":" not in self.spec)


class System(msgspec.Struct, frozen=True):
    """A system to compare: congestion controls that jobs use alternately, a transport, or a flow scheduler for all
    jobs."""

    label: str  # name in tables and figures: ``label=``, else as typed
    name: str  # as typed, without options
    role: Role
    congestion: tuple[CongestionControl, ...] = ()  # empty: the transport or the flow scheduler decides
    transport: str = TCP  # as typed
    flow_scheduler: str | None = None  # as typed
    knows: str = ""  # the information that it needs in advance, in a few words
    central: bool = False  # it decides for all jobs, from their descriptions
    labelled: str | None = None  # as typed, where ``label=`` names it

    @property
    def typed(self) -> str:
        """Return the text of this system as given to ``--system``."""
        return self.labelled or self.label

    @property
    def folder(self) -> str:
        """The folder of its results: its plain name, or that and a hash of its options."""
        return _folder(self.name, self.typed, exact=":" not in self.typed)


class EcnThreshold(msgspec.Struct, frozen=True):
    """RED on the instantaneous queue: marks from ``min_bytes`` on with a probability that grows to ``probability``.

    From ``max_bytes`` on it marks every packet. Equal thresholds make a step, as for DCTCP.
    """

    min_bytes: int
    max_bytes: int
    probability: float


class QueueDiscipline(msgspec.Struct, frozen=True):
    """A queue of a bottleneck (`testbed.queues`), by name or file, with the kernel's parameters, in the kernel's units."""

    typed: str
    name: str
    parameters: tuple[tuple[str, int], ...]
    marks: bool


class RateTrace(msgspec.Struct, frozen=True):
    """The rates of a link one after the other, from the start on, and again from the first."""

    name: str  # of the file
    every_ns: int
    rates_bps: tuple[int, ...]

    def at(self, step: int) -> int:
        """Return the rate in bit/s during ``step``, which begins ``step`` × ``every_ns`` after the start; the trace
        repeats."""
        return self.rates_bps[step % len(self.rates_bps)]


class Link(msgspec.Struct, frozen=True):
    """Shaping of a bottleneck, and the MTU of the network."""

    rate_bps: int
    buffer_bytes: int
    mtu: int
    acks_first: bool
    ecn_threshold: EcnThreshold | None = None
    bands: int = 1  # of data, in strict priority
    control: bool = False  # a priority queue above these: pure ACKs, and packets with its DSCP
    selective: tuple[
        EcnThreshold, ...
    ] = ()  # by priority queue, highest first: threshold from which packets that cannot be marked are dropped
    queue: QueueDiscipline | None = None  # None: a FIFO, or RED with an ECN threshold
    trace: RateTrace | None = None  # which its rate follows; `rate_bps` is then its highest

    @property
    def marks(self) -> bool:
        """Return True if it marks packets of ECN-capable flows."""
        return self.ecn_threshold is not None or (self.queue is not None and self.queue.marks)


class Burst(msgspec.Struct, frozen=True):
    """Probabilities, per packet, that a burst of losses begins or ends (Gilbert-Elliott model)."""

    begins: float
    ends: float


class Wire(msgspec.Struct, frozen=True):
    """Effects of a link without a bottleneck on packets in one direction."""

    delay_ns: int
    jitter_ns: int
    loss: float  # probabilities of a packet
    corrupt: float
    burst: Burst | None = None  # packets are lost only within one


class Sender(msgspec.Struct, frozen=True):
    """A host's path from socket to network, the same on all hosts. The defaults are an unlimited host."""

    nic_bps: int | None = None  # NIC rate; None: unshaped
    queue: Literal["fq", "fifo"] = "fifo"  # before that interface
    queue_bytes: int = 0  # of a FIFO
    send_buffer_bytes: int | None = None  # largest send buffer of a socket; None: more than its path holds
    slow_start_after_idle: bool = False
    small_queue_bytes: int | None = None  # of a socket below TCP (tcp_limit_output_bytes); None: the kernel's
    bands: int = 1  # of data, in that queue if it is a FIFO; more than one: with a band for control above them


class LinkEvent(msgspec.Struct, frozen=True):
    """A bottleneck becomes ``rate_bps`` fast, or fails or works again (``up``), in one direction."""

    at_ns: int
    link: str
    rate_bps: int | None
    up: bool | None


class Operation(msgspec.Struct, frozen=True, omit_defaults=True):
    """A worker's operation: a compute (in ns), or a collective (in bytes)."""

    id: str
    kind: str
    after: tuple[str, ...]
    ranks: tuple[int, ...] | None = None  # the participating ranks; None: all
    duration_ns: int | None = None  # of a compute
    bytes: int | None = None  # of a collective
    algorithm: str = ""  # of a collective
    layer: int = 0  # number of the model's layer, from the front; with credit, lower numbers are sent first
    importance: tuple[
        float, ...
    ] = ()  # of its packets: the share that matters, or magnitudes (`testbed.transports.datagram.tags`)

    # Of a trace whose ranks differ, or have several groups:
    members: tuple[int, ...] | None = None  # participating ranks, in the group's order; of a message: sender, receiver
    exchange: int = 0  # its number, the same on all members
    group: int = 0  # number of the group whose connections it uses (`JobPlan.groups`)
    rows: tuple[tuple[int, ...], ...] = ()  # bytes of uneven parts (`testbed.replay.uneven`)
    inside_ns: int | None = None  # duration inside a server; None: it crosses the network

    @property
    def computes(self) -> bool:
        return self.kind == "compute"


class Connections(msgspec.Struct, frozen=True):
    """The connections of a process group, which no other group uses."""

    name: str
    flows: tuple[tuple[int, int], ...]


class Life(msgspec.Struct, frozen=True):
    """A job that holds GPUs from its start to its end, which frees them for others."""

    gpus: tuple[str, ...]  # by rank: SERVER:SLOT
    arrival_ns: int  # times after the start of the run
    at_ns: int  # it starts no earlier,
    after: tuple[int, ...]  # nor before these jobs have ended, nor while others hold its GPUs


class JobPlan(msgspec.Struct, frozen=True):
    """One job: its hosts and the operations that its workers replay; times in ns, sizes in bytes."""

    job: int
    trace: str
    hosts: tuple[str, ...]
    cc: CongestionControl
    operations: tuple[Operation, ...]
    offset_ns: int
    noise: str
    seed: str
    ideal_s: float | None  # None: a real program, whose iteration time cannot be computed
    bytes_per_worker: tuple[int, ...]  # payload each rank sends in one iteration; empty if unknown
    iterations: int  # that count
    channels: int = 1
    leave_ns: int | None = None  # departs so long after the start
    window: int | None = None  # credit: outstanding bytes of a worker, sent by priority; None: one exchange at a time
    partition: int | None = None  # bytes of a message there, at most
    program: tuple[str, ...] | None = None  # a real program instead of a replay
    like: int = 0  # the first job that is the same in everything but its start and noise
    grid: Grid | None = None  # slots in which its iterations begin; None: no slots
    bands: tuple[int, ...] = ()  # bytes left of an iteration (in a window: of a tensor) at which packets move up a band
    falls: bool = False  # they move down instead, at so many bytes sent
    transport: str = TCP  # as typed; if not TCP, `cc` is the congestion control of its TCP part, if any
    exclusive: tuple[str, ...] = ()  # links that it holds while it communicates; empty: it shares them
    life: Life | None = None  # None: it has its hosts to itself, and continues until all jobs have their iterations
    fewest_s: float | None = (
        None  # ideal iteration on the fewest servers with enough GPUs; None: it requests none, or an older plan
    )
    trains: str | None = (
        None  # the model whose gradients and parameters it exchanges, as typed; None: bytes without meaning
    )

    groups: tuple[Connections, ...] = ()  # empty: all ranks do the same, in one group

    @property
    def by_tcp(self) -> bool:
        """Return True if the kernel carries and counts its bytes."""
        return builtin_transport.by_kernel(self.transport)

    @property
    def routers_spray(self) -> bool:
        """Return True if routers spray its packets over all equal-cost paths, regardless of the connection."""
        return builtin_transport.routers_spray(self.transport)

    @property
    def overlaps(self) -> bool:
        """Return True if an iteration may begin before the last one has ended."""
        return any(name.endswith("@-1") for operation in self.operations for name in operation.after)

    @property
    def compute_ns(self) -> int:
        """Sum of the compute durations of one iteration, in ns."""
        if not self.groups:
            return sum(operation.duration_ns or 0 for operation in self.operations)
        own = dict.fromkeys(range(len(self.hosts)), 0)  # the operations of the rank with the longest computing time
        for operation in self.operations:
            for rank in operation.ranks or ():
                own[rank] += operation.duration_ns or 0
        return max(own.values())

    @property
    def collectives(self) -> list[Operation]:
        """Return the operations that send data."""
        return [operation for operation in self.operations if not operation.computes]

    @property
    def exchanges(self) -> list[Operation]:
        """Collectives that cross the network, each once, although a collective among several roles is an operation of each role."""
        if not self.groups:
            return self.collectives
        return list({op.exchange: op for op in self.collectives if op.inside_ns is None}.values())


class Capture(msgspec.Struct, frozen=True):
    """Packets that a run keeps, in a pcapng file for each place."""

    places: tuple[str, ...]  # links ("s1-s2", both directions) and hosts
    snaplen: int  # bytes of each packet, from its Ethernet header on
    ring_packets: int  # that a ring holds
    drain_ns: int  # between two times that rings are emptied
    packets: int  # about how many there will be
    bytes: int  # of all files
    memory_bytes: int  # of all rings
    first: int = 0  # iterations of which packets are kept, from the moment that the first worker begins it
    last: int | None = None  # last captured iteration, until all workers have ended it; None: to the end


class Background(msgspec.Struct, frozen=True, omit_defaults=True):
    """A source of background traffic (`testbed.traffic`): flows between hosts, or a program."""

    kind: str  # as typed
    label: str  # of tables
    sources: tuple[str, ...]
    targets: tuple[str, ...]
    seed: str
    cc: CongestionControl | None = None  # of its flows; None: a program that chooses its own
    start_ns: int = 0  # after the first iteration begins
    stop_ns: int | None = None  # None: with the run
    pattern: Literal["long", "random", "periodic"] = "long"
    gap_ns: float = 0.0  # between two flows of a random pattern in the mean, or two bursts of a periodic one
    at_once: int = 1  # flows of a burst, or without end
    fan_in: bool = False  # all flows of a burst go to the first target
    sizes: tuple[float, ...] = (1.0,)  # CDF of flow sizes: bytes, and the share of flows up to them
    shares: tuple[float, ...] = (1.0,)
    response_bytes: int | None = None  # of the target's answer; None: it only reads
    priority: str = "0"  # DSCP, or by-size
    program: tuple[str, ...] = ()  # instead of flows: its arguments
    server: tuple[str, ...] = ()  # command that runs on the target before it


class Plan(msgspec.Struct, frozen=True):
    """The plan of one run: network, jobs, background traffic, and settings."""

    version: int
    experiment: str
    system: System
    seed: int
    topology: str
    topology_args: tuple[int, ...]
    link: Link  # the spec's settings for every bottleneck
    bottlenecks: dict[str, Link]  # the settings of each direction: "s1-s2"
    wires: dict[str, Wire]  # directions with delay, loss or corruption
    base_rtt_s: float  # idle round trip of two small packets between the first job's first and last host
    jobs: tuple[JobPlan, ...]
    sample_ns: int
    rto_min_us: int | None
    alone: int | None = None  # the one job that runs, for `isolated_s`
    measure_capacity: bool = False
    assumptions: tuple[str, ...] = ()  # unmeasured properties of the trace
    events: tuple[LinkEvent, ...] = ()
    notes: tuple[str, ...] = ()  # remarks on the replay of traces, for readers of the result
    needed_bps: int = 0  # load of the bottlenecks while every job communicates
    in_a_row: int = 1  # the maximum number of consecutive bottlenecks of a flow
    multipath: bool = False  # routers choose among equal paths (testbed.linux.paths)
    paths: int = 1  # addresses of each host, each of which has a separate path (testbed.networks.spraying)
    paths_hashed: bool = False  # or is hashed over all of them
    sender: Sender = Sender()
    nics: tuple[str, ...] = ()  # the directions that leave a host by an interface of `sender`'s rate
    schedule: dict[str, Any] | None = None  # input and decisions of the scheduler
    scheduler: str | None = None  # job scheduler, as typed; None: an older testbed did not record it
    messages: Literal["rounds", "full"] = "rounds"  # unit of a row of ``messages.csv``
    stop_when_periodic: int = (
        0  # equal iterations after which it ends, and the rest is filled in; 0: it runs to the end
    )
    crossed: bool = False  # one of several job schedulers: its results are in a folder of its scheduler, inside the experiment folder
    servers: dict[str, int] = {}  # GPUs of each, where jobs hold some; empty: none do, or older
    nics_per_server: int = 1  # each is a host of the topology, with a separate link
    capture: Capture | None = None
    background: tuple[Background, ...] = ()

    @property
    def registered(self) -> list[CongestionControl]:
        """The congestion controls to register in the kernel: those of jobs and of background traffic, each once."""
        return list({cc.spec: cc for cc in (*self.ccs, *(one.cc for one in self.background if one.cc))}.values())

    @property
    def traced(self) -> bool:
        """Return True if the rate of a link follows a trace."""
        return any(link.trace for link in self.bottlenecks.values())

    @property
    def ccs(self) -> list[CongestionControl]:
        """Congestion controls of the jobs, each once."""
        return list({job.cc.spec: job.cc for job in self.jobs}.values())

    @property
    def iterations(self) -> int:
        """Largest number of iterations of a job."""
        return max(job.iterations for job in self.jobs)

    @property
    def transports(self) -> list[str]:
        """Transports of the jobs other than plain TCP, as typed, each once."""
        return list(dict.fromkeys(job.transport for job in self.jobs if not builtin_transport.plain(job.transport)))

    def host_queue_bytes(self, host: str) -> int | None:
        """Limit of a host's NIC queue, in bytes; None: there is no queue."""
        own = [link.buffer_bytes for name, link in self.bottlenecks.items() if name.startswith(f"{host}-")]
        if any(name.startswith(f"{host}-") for name in self.nics) and self.sender.queue == "fifo":
            own.append(self.sender.queue_bytes)
        return min(own, default=None)

    @property
    def ends(self) -> tuple[str, str]:
        """First and last host of the first job that has several; of jobs that all are on one host each, a host twice."""
        job = next((job for job in self.jobs if len(set(job.hosts)) > 1), self.jobs[0])
        return job.hosts[0], next((host for host in job.hosts[::-1] if host != job.hosts[0]), job.hosts[0])

    @property
    def lives(self) -> bool:
        """Return True if jobs hold GPUs, end after their iterations, and free the GPUs for others."""
        return any(job.life is not None for job in self.jobs)

    @property
    def expected_s(self) -> float:
        """Duration without contention, in s; an iteration of a real program counts as 1 s."""
        return max(
            job.iterations * (1.0 if job.ideal_s is None else job.ideal_s) + job.offset_ns / 1e9 for job in self.jobs
        )

    @property
    def rto_min_ms(self) -> float:
        """Return TCP's minimum RTO in ms; the kernel's default if none was requested."""
        return RTO_MIN_MS if self.rto_min_us is None else self.rto_min_us / 1e3

    @property
    def folder(self) -> Path:
        """Return the path of the run directory, relative to the experiment folder."""
        if self.alone is not None:
            return alone_folder(self, self.alone)
        return self.scheduler_folder / self.system.folder / str(self.seed)

    @property
    def scheduler_folder(self) -> Path:
        """The folder of its job scheduler, below the experiment folder; the experiment folder itself if there is only one scheduler."""
        if not self.crossed or self.scheduler is None:
            return Path()
        name = Path(system_text.name_of(self.scheduler)).stem
        return Path(_folder(name, self.scheduler, exact=name == self.scheduler))


def alone_folder(plan: Plan, job: int) -> Path:
    """The run directories of ``job`` in isolation, below the experiment folder."""
    return plan.scheduler_folder / "isolated" / f"job{job}" / plan.system.folder / str(plan.seed)

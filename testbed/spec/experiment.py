"""An experiment as data: `Spec`, what single links have of their own (`LinkSpec`), and what happens to links (`Event`).

Every field of `Spec` is a flag (``--rate``) and a key of the file (``rate = "500mbit"``). It is declared here, once (`testbed.spec.fields`).
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from testbed.core.errors import within
from testbed.core.units import Duration, Rate, Share, Size
from testbed.models.frames import payload_share
from testbed.replay import training
from testbed.spec import fields
from testbed.spec.fields import field
from testbed.spec.job import Job, complete
from testbed.spec.relative_quantities import (
    HostQueue,
    LinkRate,
    Loss,
    Marks,
    NicRate,
    PriorityQueues,
    QueueLength,
    StartOffsets,
)
from testbed.traces import devices
from testbed.traces.devices import Bandwidth, Device, Flops
from testbed.traces.noise import Noise


class LinkSpec(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What one link of the topology has of its own; both directions, or with `oneway` that which it is named by ("h1-s1": what h1 sends)."""

    rate: Annotated[LinkRate | None, field("rate of a bottleneck, or a share of the experiment's: 50%")] = None
    buffer: Annotated[
        QueueLength | None, field("buffer of a bottleneck, as time, size or frames", metavar="LENGTH")
    ] = None
    ecn: Annotated[
        Marks | None, field("ECN thresholds of a bottleneck, written as the experiment's", metavar="THRESHOLDS")
    ] = None
    queue: Annotated[str | None, field("queue of a bottleneck, written as the experiment's", metavar="QUEUE")] = None
    delay: Annotated[Duration | None, field("one-way delay of a link that is no bottleneck")] = None
    jitter: Annotated[Duration | None, field("by how much that delay varies, evenly")] = None
    loss: Annotated[Loss | None, field("share of packets lost, written as the experiment's", metavar="FRACTION")] = None
    corrupt: Annotated[Share | None, field("share of packets with a bit flipped at random", metavar="FRACTION")] = None
    oneway: Annotated[
        bool,
        field(
            "`delay`, `jitter`, `loss` and `corrupt` hold for what the first node of the link's name sends, not back"
        ),
    ] = False

    def beside(self, usual: LinkSpec) -> LinkSpec:
        """What is not said here is as ``usual`` says."""
        own = {name: value for name in self.__struct_fields__ if (value := getattr(self, name)) is not None}
        return msgspec.structs.replace(usual, **own)


class Event(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What happens to a bottleneck at a time after the start; both directions."""

    at: Annotated[Duration, field("time after the start")]
    link: Annotated[str, field("the bottleneck, by its name: s1-s2")]
    rate: Annotated[LinkRate | None, field("its rate from then on, or a share of its rate at the start: 50%")] = None
    state: Annotated[Literal["up", "down"] | None, field("down: the link fails; up: it works again")] = None


class Spec(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One experiment. `testbed.spec.read` makes a checked one."""

    name: Annotated[
        str, field("name of the results folder", group="results", if_unset="made from the other fields")
    ] = ""
    topo: Annotated[
        str, field("topology, or ./mine.py; with arguments as in Mininet: dumbbell,4", group="network", metavar="NAME")
    ] = "dumbbell"
    scheduler: Annotated[
        tuple[str, ...],
        field(
            "job scheduler, which says what host runs what worker: spread over the edges, packed, random, or ./mine.toml; several are crossed with the systems",
            group="workload",
            metavar="NAME",
            aliases=("place",),
        ),
    ] = ("spread",)
    jobs: Annotated[int, field("number of jobs", group="workload")] = 2
    workers: Annotated[
        int | None, field("workers of each job", group="workload", if_unset="as many as its trace has ranks, or 2")
    ] = None
    trace: Annotated[
        str | None,
        field(
            "trace that the jobs replay: a name of the library, or ./mine.json",
            group="workload",
            if_unset="a synthetic job",
        ),
    ] = None
    compute: Annotated[
        Duration | None, field("compute time of a synthetic job's iteration, with --bytes", group="workload")
    ] = None
    bytes: Annotated[
        Size | None,
        field(
            "bytes of a synthetic job's iteration: sent one way over the bottleneck, or the tensor of its collective (an all-reduce with more than two workers)",
            group="workload",
        ),
    ] = None
    buckets: Annotated[
        int | None,
        field(
            "buckets in which a synthetic job exchanges its tensor, beside its backward pass",
            group="workload",
            if_unset="1: after it",
        ),
    ] = None
    collective: Annotated[
        str | None,
        field(
            "how all-reduces are carried out: ring, tree, parameter_server, …, or ./mine.py",
            group="workload",
            metavar="NAME",
            if_unset="ring",
        ),
    ] = None
    channels: Annotated[int, field("connections of a flow", group="workload")] = 1
    credit_bytes: Annotated[
        Size | None,
        field(
            "bytes of a worker on their way at a time, front layers first: exchanges are in flight together",
            group="workload",
            old_names=("window",),
            folder_name="window",
            if_unset="one exchange after the other",
        ),
    ] = None
    partition_bytes: Annotated[
        Size | None,
        field(
            "largest part of a message that takes credit (--credit-bytes)",
            group="workload",
            old_names=("partition",),
            folder_name="partition",
            if_unset="as large as it is",
        ),
    ] = None
    train: Annotated[
        str | None,
        field(
            f"model that the jobs train for real, by a parameter server, or in a ring (--collective ring): {', '.join(training.names())}; with :fill=mean_of_received or feedback what becomes of holes",
            group="workload",
            metavar="MODEL",
            if_unset="bytes nobody looks at",
        ),
    ] = None
    job: Annotated[
        tuple[Job, ...],
        field(
            'a job of its own, once for each: resnet50,workers=4,offset=2s; synthetic,compute=1s,bytes=5MB; ddp:resnet18 (real PyTorch, on `host`); cmd:"python train.py"',
            group="workload",
        ),
    ] = ()
    job_order: Annotated[
        Literal["file", "shuffled"],
        field(
            "order in which jobs are numbered, and asked by a job scheduler: that of the file, or shuffled, in another way for each seed",
            group="workload",
            old_values={"listed": "file", "drawn": "shuffled"},
            folder_name="job_order",
        ),
    ] = "file"
    system: Annotated[
        tuple[str, ...],
        field(
            "systems that are compared, the first is the baseline: congestion controls; or a transport: ltp, mlt, dlcp, reno:early_close=0.8 (docs/transports.md); or schedulers: cassini, priority, unfair (docs/baselines.md)",
            group="systems",
            aliases=("cc",),
        ),
    ] = ("reno", "mltcp_reno")
    preset: Annotated[
        Literal["recommended", "paper", "placebo"],
        field("preset of every MLTCP that names none (docs/congestion-controls.md)", group="systems"),
    ] = "recommended"
    iterations: Annotated[int, field("iterations of every job", group="repetition", low=1, high=100_000)] = 30
    seed: Annotated[int, field("first seed", group="repetition", low=0, high=2**31)] = 1
    seeds: Annotated[
        int, field("number of seeds; from 3 on results have confidence intervals", group="repetition", low=1, high=1000)
    ] = 1
    isolated_runs: Annotated[
        Literal["auto", "each", "first", "none"],
        field(
            "runs of single jobs, for comparison: auto (each kind of job once, under the baseline; under another system only where a lone job's time can depend on it), each (kind, system and seed), first (seed only), or none but those that a flow scheduler needs",
            group="repetition",
            old_names=("alone",),
        ),
    ] = "auto"
    rate: Annotated[Rate, field("rate of the bottleneck, both directions", group="network", low="1mbit")] = (
        msgspec.field(default_factory=lambda: Rate(500_000_000))
    )
    buffer: Annotated[
        QueueLength,
        field("buffer of the bottleneck, as time, size or frames: 1ms, 500kB, 200p", group="network", metavar="LENGTH"),
    ] = msgspec.field(default_factory=lambda: QueueLength("200p"))
    mtu: Annotated[int, field("largest packet, in bytes", group="network", metavar="BYTES", low=576, high=65535)] = 1500
    link: Annotated[
        dict[str, LinkSpec],
        field("what single links have of their own, by their names: s1-s2", group="network", flag=False),
    ] = {}
    event: Annotated[
        tuple[Event, ...],
        field("what happens to bottlenecks while jobs run, once for each event", group="network", flag=False),
    ] = ()
    ack_priority: Annotated[
        Literal["off", "on"],
        field(
            "on: pure ACKs have a queue of their own at the bottleneck, which goes first",
            group="network",
            old_names=("acks",),
            old_values={"mixed": "off", "first": "on"},
            folder_name="acks",
        ),
    ] = "off"
    ecn: Annotated[
        Marks,
        field(
            "mark before dropping, by RED: on (from a fifth of the buffer), a threshold (65kB, 200us, 40p), MIN,MAX,PROBABILITY, or off",
            group="network",
            metavar="THRESHOLDS",
            const="on",
        ),
    ] = msgspec.field(default_factory=lambda: Marks("on"))
    queue: Annotated[
        str,
        field(
            "queue of the bottleneck: fifo (which marks by --ecn), codel, fq_codel, cake, pie, fq, sfq, or ./mine.py, each with its options: fq_codel:target=5ms",
            group="network",
            metavar="QUEUE",
        ),
    ] = "fifo"
    priority_queues: Annotated[
        PriorityQueues,
        field(
            "queues of data in strict priority by class selector, with one above them for control; 4,drop-non-ect: they drop what cannot be marked; 4,mlt-thresholds: from thresholds as MLT's appendix has them; 1,separate-control: one below that of control; 1: one queue for all",
            group="network",
            metavar="N",
            old_names=("bands",),
            folder_name="bands",
        ),
    ] = msgspec.field(default_factory=lambda: PriorityQueues("1"))
    delay: Annotated[
        Duration, field("one-way delay, added on the last hop of every path", group="network", high="1s")
    ] = msgspec.field(default_factory=lambda: Duration(0))
    jitter: Annotated[
        Duration, field("by how much the delay varies, evenly; packets may overtake", group="network")
    ] = msgspec.field(default_factory=lambda: Duration(0))
    loss: Annotated[
        Loss,
        field(
            "share of packets lost at random on the last hop; ge:loss=80%,p=0.1%,r=5% (Gilbert-Elliott): 80% within bursts, which begin behind a packet with 0.1% and end with 5%",
            group="network",
            metavar="FRACTION",
        ),
    ] = msgspec.field(default_factory=lambda: Loss("0%"))
    corrupt: Annotated[
        Share,
        field("share of packets with a bit flipped at random on the last hop", group="network", metavar="FRACTION"),
    ] = msgspec.field(default_factory=lambda: Share("0%"))
    start_offsets: Annotated[
        StartOffsets,
        field(
            "when jobs start: clustered (within 5 % of an iteration), uniform, or a time for each, 0ms,50ms,…",
            group="workload",
            metavar="STARTS",
            old_names=("offsets",),
            folder_name="offsets",
        ),
    ] = msgspec.field(default_factory=lambda: StartOffsets("clustered"))
    noise: Annotated[
        Noise | None,
        field(
            "noise of the compute time: 5%, lognormal:5%, stragglers:1%",
            group="workload",
            if_unset="what the trace was measured with",
        ),
    ] = None
    rto_min: Annotated[
        Duration | None,
        field(
            "minimum retransmission timeout, 1ms to 200ms",
            group="network",
            if_unset="the kernel's 200ms",
            low="1ms",
            high="200ms",
        ),
    ] = None
    nic: Annotated[
        NicRate,
        field(
            "rate of every host's interface, a share of the links' (100%), or inf: as fast as memory",
            group="network",
            metavar="RATE",
        ),
    ] = msgspec.field(default_factory=lambda: NicRate("100%"))
    host_queue: Annotated[
        HostQueue,
        field(
            "queue before that interface: fq (which paces), pfifo_fast:20ms (a time or a size), or none: it never drops",
            group="network",
            metavar="QUEUE",
        ),
    ] = msgspec.field(default_factory=lambda: HostQueue("pfifo_fast:20ms"))
    sndbuf: Annotated[
        Size | None,
        field(
            "largest send buffer of a socket",
            group="network",
            if_unset="more than its path holds",
            low="4096B",
            high="2GB",
        ),
    ] = None
    slow_start_after_idle: Annotated[
        Literal[0, 1],
        field("1: a congestion window shrinks while nothing is sent, as Linux has it by default", group="network"),
    ] = 0
    represents_rate: Annotated[
        Rate | None,
        field(
            "rate for which this one stands: what a host limits in bytes is scaled with it",
            group="network",
            if_unset="the rate itself",
            old_names=("scale_of",),
        ),
    ] = None
    device: Annotated[
        str | None,
        field(
            f"device that computes a trace's work (flops, memory_bytes): {', '.join(devices.KNOWN)}",
            group="workload",
            metavar="NAME",
            if_unset="the trace's own",
        ),
    ] = None
    peak: Annotated[
        Flops | None,
        field("peak speed of a device: 312tflops", group="workload", metavar="SPEED", if_unset="its own"),
    ] = None
    mfu: Annotated[
        Share | None,
        field(
            "MFU: share of a device's peak that training reaches",
            group="workload",
            metavar="FRACTION",
            if_unset="40%, or the trace's own",
        ),
    ] = None
    memory: Annotated[
        Bandwidth | None,
        field("memory bandwidth of a device: 2tb/s", group="workload", metavar="BANDWIDTH", if_unset="its own"),
    ] = None
    keep_duty: Annotated[
        bool,
        field(
            "scale bytes of traces by rate ÷ native rate: a job then communicates for the same share of its iteration at any rate",
            group="workload",
            if_unset="bytes as they are",
        ),
    ] = False
    intra_server_rate: Annotated[
        Rate | None,
        field(
            "rate of exchanges inside a server: of jobs that ask for GPUs, and of traces with groups inside a server",
            group="network",
            old_names=("intra_rate",),
            folder_name="intra_rate",
            if_unset="infinitely fast",
        ),
    ] = None
    nics: Annotated[
        int,
        field(
            "network interfaces of each server (rails), each with a link of its own; rank r of a server uses interface r mod N",
            group="network",
            metavar="N",
            low=1,
            high=16,
        ),
    ] = 1
    sample_interval: Annotated[
        Duration,
        field(
            "interval of link and flow samples",
            group="measurement",
            old_names=("sample",),
            folder_name="sample",
            low="1ms",
        ),
    ] = msgspec.field(default_factory=lambda: Duration(10_000_000))
    message_log: Annotated[
        Literal["per-round", "per-message"],
        field(
            "messages.csv of transports that may lose: a row a round and peer, or a row a message",
            group="measurement",
            old_names=("messages",),
            old_values={"rounds": "per-round", "full": "per-message"},
            folder_name="messages",
        ),
    ] = "per-round"
    stop_when_periodic: Annotated[
        int,
        field(
            "under virtual time, without noise: end a run once so many of all its jobs' iterations are alike to the nanosecond, and fill in the rest; 0: never",
            group="repetition",
            const=3,
            low=0,
            high=1000,
        ),
    ] = 0
    on: Annotated[
        str,
        field(
            "backend that runs it: uml (user-mode Linux, under virtual time), host (this machine's kernel; root), flow (no kernel: the flow-level twin computes it), vagrant, ssh:[USER@]HOST[:PORT]; auto: uml where it can run it, else host, saying why",
            group="where it runs",
            metavar="BACKEND",
        ),
    ] = "auto"
    wall_limit: Annotated[
        Duration | None,
        field(
            "end a run after so much wall time, whatever happens",
            group="where it runs",
            if_unset="when nothing moves any more",
        ),
    ] = None

    @property
    def buffer_bytes(self) -> int:
        """The bottleneck's buffer: given in bytes, or as a time at its rate."""
        return self.buffer.bytes(int(self.rate), self.mtu)

    def device_of(self, job: Job) -> Device | None:
        """The device that computes the work of a job: its own, the experiment's, or its trace's, with the experiment's MFU; raises `RequestError`."""
        mfu = None if self.mfu is None else self.mfu.value
        if job.device not in (None, self.device):
            return devices.device(job.device, None, mfu, None)
        trace = None if job.program is not None or job.trace is None else job.read_trace()
        if trace is not None and any(op.by_work for op in trace.all_operations):
            return trace.computed_by(self.device, self.peak, mfu, self.memory)
        named = (self.device, self.peak, self.memory) != (None, None, None)
        return devices.device(self.device, self.peak, mfu, self.memory) if named else None

    @property
    def lives(self) -> bool:
        """Whether its jobs ask for GPUs: then they wait for them, and free them at their end."""
        return any(job.gpus is not None for job in self.job)

    @property
    def all_jobs(self) -> tuple[Job, ...]:
        """Every job, complete; raises `JobError`."""
        shared = {name: getattr(self, name) for name in OF_JOBS}
        if all(shared[name] is None for name in ("trace", "compute", "bytes", "train")):
            shared["compute"], shared["bytes"] = default_job(self.jobs, int(self.rate), self.mtu)
        defaults = Job(**shared)
        if not self.job:
            return (complete(Job(), defaults),) * self.jobs
        result = []
        for number, one in enumerate(self.job):
            with within(f"job.{number}", "."):
                result.append(complete(one, defaults))
        return tuple(result)


OF_JOBS = tuple(name for name in fields.of_struct(Job) if name in fields.of_struct(Spec))  # what a job may say itself


def default_job(jobs: int, rate_bps: int, mtu: int) -> tuple[Duration, Size]:
    """The job replayed when none is named: one second alone, all of them together 96 % of the link."""
    duty = 0.96 / max(2, jobs)
    payload = duty * rate_bps / 8 * payload_share(mtu)
    return Duration(round((1 - duty) * 1e9)), Size(round(payload))

"""An experiment as data: `Spec`, settings of single links (`LinkSpec`), and changes of links over time (`Event`).

Every field of `Spec` is a flag (``--rate``) and a key of the file (``rate = "500mbit"``), declared only here
(`testbed.spec.fields`).
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
    """Settings of one link of the topology, for both directions.

    With `oneway`, only for the named direction ("h1-s1": data that h1 sends).
    """

    rate: Annotated[LinkRate | None, field("bottleneck rate, or a fraction of the experiment's: 50%")] = None
    buffer: Annotated[QueueLength | None, field("bottleneck buffer: 1ms, 500kB or 200p", metavar="LENGTH")] = None
    ecn: Annotated[Marks | None, field("ECN marking of a bottleneck", metavar="THRESHOLDS")] = None
    queue: Annotated[str | None, field("bottleneck queue", metavar="QUEUE")] = None
    rate_trace: Annotated[str | None, field("file whose rates a bottleneck follows (mahimahi)", metavar="FILE")] = None
    delay: Annotated[Duration | None, field("one-way delay, after the queue of a bottleneck")] = None
    jitter: Annotated[Duration | None, field("uniform variation of the delay; packets may be reordered")] = None
    loss: Annotated[Loss | None, field("random packet loss", metavar="FRACTION")] = None
    corrupt: Annotated[Share | None, field("fraction of packets with one bit flipped", metavar="FRACTION")] = None
    oneway: Annotated[
        bool,
        field("delay, jitter, loss and corrupt only for packets from the first node in the link's name"),
    ] = False

    def beside(self, usual: LinkSpec) -> LinkSpec:
        """Return these settings, with missing ones taken from ``usual``."""
        own = {name: value for name in self.__struct_fields__ if (value := getattr(self, name)) is not None}
        return msgspec.structs.replace(usual, **own)


class Event(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A change of a bottleneck at a time after the start, in both directions."""

    at: Annotated[Duration, field("time after the start")]
    link: Annotated[str, field("bottleneck, by name: s1-s2")]
    rate: Annotated[LinkRate | None, field("new rate, or a fraction of the initial rate: 50%")] = None
    state: Annotated[Literal["up", "down"] | None, field("down: the link fails; up: it recovers")] = None


class Spec(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One experiment. `testbed.spec.read` makes a checked one."""

    name: Annotated[str, field("results folder name", group="results", if_unset="from the other fields")] = ""
    topo: Annotated[str, field("topology: dumbbell,4 or ./mine.py", group="network", metavar="NAME")] = "dumbbell"
    scheduler: Annotated[
        tuple[str, ...],
        field(
            "job schedulers, which place workers on hosts: spread, packed, random, or ./mine.toml; several: combined with every system",
            group="workload",
            advanced=True,
            metavar="NAME",
            aliases=("place",),
        ),
    ] = ("spread",)
    jobs: Annotated[int, field("number of jobs", group="workload")] = 2
    workers: Annotated[int | None, field("workers per job", group="workload", if_unset="the trace's ranks, or 2")] = (
        None
    )
    trace: Annotated[
        str | None,
        field(
            "library trace, or ./mine.json",
            group="workload",
            if_unset="synthetic job",
        ),
    ] = None
    compute: Annotated[
        Duration | None,
        field(
            "compute time per iteration of a synthetic job",
            group="workload",
            advanced=True,
            if_unset="such that the jobs offer 96 % of the link rate",
        ),
    ] = None
    bytes: Annotated[
        Size | None,
        field(
            "bytes per iteration of a synthetic job: one way between two workers, all-reduced by more",
            group="workload",
            advanced=True,
            if_unset="such that the jobs offer 96 % of the link rate",
        ),
    ] = None
    buckets: Annotated[
        int | None,
        field(
            "buckets in which a synthetic job exchanges its tensor during the backward pass",
            group="workload",
            advanced=True,
            if_unset="1, after the backward pass",
        ),
    ] = None
    collective: Annotated[
        str | None,
        field(
            "all-reduce algorithm, or ./mine.py",
            group="workload",
            metavar="NAME",
            if_unset="ring",
        ),
    ] = None
    channels: Annotated[int, field("parallel connections per flow", group="workload", advanced=True)] = 1
    credit_bytes: Annotated[
        Size | None,
        field(
            "bytes that a worker may have outstanding; front layers go first, and exchanges overlap",
            group="workload",
            advanced=True,
            old_names=("window",),
            folder_name="window",
            if_unset="one exchange at a time",
        ),
    ] = None
    partition_bytes: Annotated[
        Size | None,
        field(
            "largest part of a message that takes credit",
            group="workload",
            advanced=True,
            old_names=("partition",),
            folder_name="partition",
            if_unset="the whole message",
        ),
    ] = None
    train: Annotated[
        str | None,
        field(
            f"model to train over the emulated network: {', '.join(training.names())}; gap filling: cnn:fill=mean_of_received or cnn:feedback",
            group="workload",
            advanced=True,
            metavar="MODEL",
            if_unset="none: messages hold no data",
        ),
    ] = None
    job: Annotated[
        tuple[Job, ...],
        field(
            "one job, repeatable: resnet50,workers=4; synthetic,compute=1s,bytes=9MB; ddp:resnet18; cmd:COMMAND",
            group="workload",
            if_unset="--jobs equal jobs",
        ),
    ] = ()
    job_order: Annotated[
        Literal["file", "shuffled"],
        field(
            "order of jobs: that of the file, or shuffled by the seed",
            group="workload",
            advanced=True,
            old_values={"listed": "file", "drawn": "shuffled"},
            folder_name="job_order",
        ),
    ] = "file"
    system: Annotated[
        tuple[str, ...],
        field(
            "congestion controls, transports, flow schedulers; the first is the baseline",
            group="systems",
            aliases=("cc",),
        ),
    ] = ("reno", "mltcp_reno")
    preset: Annotated[
        Literal["recommended", "paper", "placebo"],
        field("MLTCP parameter preset", group="systems"),
    ] = "recommended"
    iterations: Annotated[int, field("iterations to measure per job", group="repetition", low=1, high=100_000)] = 30
    seed: Annotated[int, field("first seed", group="repetition", low=0, high=2**31)] = 1
    seeds: Annotated[int, field("number of seeds; intervals need 3 or more", group="repetition", low=1, high=1000)] = 1
    isolated_runs: Annotated[
        Literal["auto", "each", "first", "none"],
        field(
            "isolated runs: auto (each kind of job once, under systems that can change its time), each (kind, system and seed), first (seed), or none",
            group="repetition",
            advanced=True,
            old_names=("alone",),
        ),
    ] = "auto"
    rate: Annotated[Rate, field("bottleneck rate, each direction", group="network", low="1mbit")] = msgspec.field(
        default_factory=lambda: Rate(500_000_000)
    )
    rate_trace: Annotated[
        str | None,
        field(
            "mahimahi file (a time in ms per packet) with the rate of all bottlenecks that set none",
            group="network",
            advanced=True,
            metavar="FILE",
            if_unset="constant rate",
        ),
    ] = None
    buffer: Annotated[
        QueueLength,
        field("bottleneck buffer: 1ms, 500kB or 200p", group="network", metavar="LENGTH"),
    ] = msgspec.field(default_factory=lambda: QueueLength("200p"))
    mtu: Annotated[int, field("largest IP packet, in bytes", group="network", metavar="BYTES", low=576, high=65535)] = (
        1500
    )
    link: Annotated[
        dict[str, LinkSpec],
        field("settings of single links, by name: s1-s2", group="network", flag=False),
    ] = {}
    event: Annotated[
        tuple[Event, ...],
        field("changes of a bottleneck while jobs run", group="network", flag=False),
    ] = ()
    ack_priority: Annotated[
        Literal["off", "on"],
        field(
            "separate bottleneck queue for pure ACKs, served first",
            group="network",
            advanced=True,
            old_names=("acks",),
            old_values={"mixed": "off", "first": "on"},
            folder_name="acks",
        ),
    ] = "off"
    ecn: Annotated[
        Marks,
        field(
            "ECN marking: on (from 20 % of the buffer), off, 65kB, 200us, 40p, or MIN,MAX,PROBABILITY",
            group="network",
            metavar="THRESHOLDS",
            const="on",
        ),
    ] = msgspec.field(default_factory=lambda: Marks("on"))
    queue: Annotated[
        str,
        field(
            "bottleneck queue: fifo, codel, fq_codel:target=5ms, cake, pie, fq, sfq or ./mine.py",
            group="network",
            metavar="QUEUE",
        ),
    ] = "fifo"
    priority_queues: Annotated[
        PriorityQueues,
        field(
            "strict-priority queues by DSCP, below one for control; 4,drop-non-ect: packets without ECN are dropped; 4,mlt-thresholds: MLT's thresholds; 1,separate-control: one data queue; 1: one queue for all",
            group="network",
            advanced=True,
            metavar="N",
            old_names=("bands",),
            folder_name="bands",
        ),
    ] = msgspec.field(default_factory=lambda: PriorityQueues("1"))
    delay: Annotated[Duration, field("one-way delay on the last hop", group="network", high="1s")] = msgspec.field(
        default_factory=lambda: Duration(0)
    )
    jitter: Annotated[
        Duration, field("uniform variation of the delay; packets may be reordered", group="network", advanced=True)
    ] = msgspec.field(default_factory=lambda: Duration(0))
    loss: Annotated[
        Loss,
        field(
            "packet loss on the last hop: 1%, or in bursts: ge:loss=80%,p=0.1%,r=5%",
            group="network",
            metavar="FRACTION",
        ),
    ] = msgspec.field(default_factory=lambda: Loss("0%"))
    corrupt: Annotated[
        Share,
        field(
            "fraction of packets with one bit flipped on the last hop",
            group="network",
            advanced=True,
            metavar="FRACTION",
        ),
    ] = msgspec.field(default_factory=lambda: Share("0%"))
    background: Annotated[
        tuple[str, ...],
        field(
            "background traffic: long, poisson, incast, storage, checkpoint, inference, iperf3, cmd",
            group="network",
            if_unset="none",
            metavar="TRAFFIC",
        ),
    ] = ()
    start_offsets: Annotated[
        StartOffsets,
        field(
            "start times: clustered (within 5 % of an iteration), uniform, or one per job: 0ms,50ms,…",
            group="workload",
            advanced=True,
            metavar="STARTS",
            old_names=("offsets",),
            folder_name="offsets",
        ),
    ] = msgspec.field(default_factory=lambda: StartOffsets("clustered"))
    noise: Annotated[
        Noise | None,
        field(
            "compute-time noise: 5%, lognormal:5%, stragglers:1%",
            group="workload",
            advanced=True,
            if_unset="that of the trace",
        ),
    ] = None
    rto_min: Annotated[
        Duration | None,
        field(
            "minimum RTO, 1ms to 200ms",
            group="network",
            if_unset="200ms",
            low="1ms",
            high="200ms",
        ),
    ] = None
    nic: Annotated[
        NicRate,
        field(
            "NIC rate: 25gbit, 50% of the link, inf",
            group="network",
            metavar="RATE",
        ),
    ] = msgspec.field(default_factory=lambda: NicRate("100%"))
    host_queue: Annotated[
        HostQueue,
        field(
            "NIC egress queue: pfifo_fast:20ms (a time or a size), fq (paces), or none (never drops)",
            group="network",
            advanced=True,
            metavar="QUEUE",
        ),
    ] = msgspec.field(default_factory=lambda: HostQueue("pfifo_fast:20ms"))
    sndbuf: Annotated[
        Size | None,
        field(
            "socket send buffer limit",
            group="network",
            advanced=True,
            if_unset="above what the path holds",
            low="4096B",
            high="2GB",
        ),
    ] = None
    slow_start_after_idle: Annotated[
        Literal[0, 1],
        field("congestion window reset after idle time: 1 (Linux's default) or 0", group="network", advanced=True),
    ] = 0
    represents_rate: Annotated[
        Rate | None,
        field(
            "rate that this run represents; host limits in bytes are scaled to it",
            group="network",
            advanced=True,
            if_unset="--rate",
            old_names=("scale_of",),
        ),
    ] = None
    device: Annotated[
        str | None,
        field(
            f"device for traces that give flops: {', '.join(devices.KNOWN)}",
            group="workload",
            advanced=True,
            metavar="NAME",
            if_unset="the trace's",
        ),
    ] = None
    peak: Annotated[
        Flops | None,
        field(
            "peak speed of the device: 312tflops",
            group="workload",
            advanced=True,
            metavar="SPEED",
            if_unset="the device's",
        ),
    ] = None
    mfu: Annotated[
        Share | None,
        field(
            "model FLOPs utilization: fraction of the peak that training reaches",
            group="workload",
            advanced=True,
            metavar="FRACTION",
            if_unset="40%, or the trace's",
        ),
    ] = None
    memory: Annotated[
        Bandwidth | None,
        field(
            "memory bandwidth of the device: 2tb/s",
            group="workload",
            advanced=True,
            metavar="BANDWIDTH",
            if_unset="the device's",
        ),
    ] = None
    keep_duty: Annotated[
        bool,
        field(
            "bytes scaled by rate ÷ native rate",
            group="workload",
            if_unset="unscaled",
        ),
    ] = False
    intra_server_rate: Annotated[
        Rate | None,
        field(
            "rate of exchanges between GPUs of one server",
            group="network",
            advanced=True,
            old_names=("intra_rate",),
            folder_name="intra_rate",
            if_unset="unlimited",
        ),
    ] = None
    nics: Annotated[
        int,
        field(
            "NICs per server (rails), one link each; rank r uses NIC r mod N",
            group="network",
            advanced=True,
            metavar="N",
            low=1,
            high=16,
        ),
    ] = 1
    sample_interval: Annotated[
        Duration,
        field(
            "sampling interval of links and flows",
            group="measurement",
            advanced=True,
            old_names=("sample",),
            folder_name="sample",
            low="1ms",
        ),
    ] = msgspec.field(default_factory=lambda: Duration(10_000_000))
    message_log: Annotated[
        Literal["per-round", "per-message"],
        field(
            "rows of messages.csv: per round and peer, or per message",
            group="measurement",
            advanced=True,
            old_names=("messages",),
            old_values={"rounds": "per-round", "full": "per-message"},
            folder_name="messages",
        ),
    ] = "per-round"
    capture: Annotated[
        tuple[str, ...],
        field(
            "links (s1-s2, both directions) and hosts (h1) to capture, each into a pcapng file",
            group="measurement",
            advanced=True,
            if_unset="none",
            metavar="PLACE",
        ),
    ] = ()
    capture_iterations: Annotated[
        str | None,
        field(
            "iterations to capture, as numbered in iterations.csv: 3-5, or 7",
            group="measurement",
            advanced=True,
            metavar="FIRST-LAST",
            if_unset="all",
        ),
    ] = None
    snaplen: Annotated[
        int,
        field(
            "bytes kept of each captured packet, headers included",
            group="measurement",
            advanced=True,
            low=64,
            high=65000,
        ),
    ] = 96
    stop_when_periodic: Annotated[
        int,
        field(
            "number of identical iterations (to the nanosecond) after which a run ends and the rest is filled in; virtual time only; 0: never",
            group="repetition",
            advanced=True,
            const=3,
            low=0,
            high=1000,
        ),
    ] = 0
    on: Annotated[
        str,
        field(
            "backend: uml (virtual time), host (this kernel, as root), flow (simulator), vagrant, ssh:[USER@]HOST[:PORT], auto",
            group="execution",
            metavar="BACKEND",
        ),
    ] = "auto"
    wall_limit: Annotated[
        Duration | None,
        field(
            "wall-time limit of a run",
            group="execution",
            advanced=True,
            if_unset="none; a run without progress is stopped",
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
        """Return True if its jobs request GPUs; such jobs wait for GPUs and free them at their end."""
        return any(job.gpus is not None for job in self.job)

    @property
    def all_jobs(self) -> tuple[Job, ...]:
        """Return every job with all defaults filled in. Raises `JobError` if a job contradicts itself."""
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


OF_JOBS = tuple(name for name in fields.of_struct(Job) if name in fields.of_struct(Spec))  # set by jobs, too


def default_job(jobs: int, rate_bps: int, mtu: int) -> tuple[Duration, Size]:
    """The job replayed when none is named: one second alone, all of them together 96 % of the link."""
    duty = 0.96 / max(2, jobs)
    payload = duty * rate_bps / 8 * payload_share(mtu)
    return Duration(round((1 - duty) * 1e9)), Size(round(payload))

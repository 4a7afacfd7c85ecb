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

    rate: Annotated[LinkRate | None, field("bottleneck rate, or a fraction of the experiment's: 50%")] = None
    buffer: Annotated[
        QueueLength | None, field("bottleneck buffer, as time, size or frames: 1ms, 500kB, 200p", metavar="LENGTH")
    ] = None
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
        """These settings, with missing ones taken from ``usual``."""
        own = {name: value for name in self.__struct_fields__ if (value := getattr(self, name)) is not None}
        return msgspec.structs.replace(usual, **own)


class Event(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What happens to a bottleneck at a time after the start; both directions."""

    at: Annotated[Duration, field("time after the start")]
    link: Annotated[str, field("bottleneck, by name: s1-s2")]
    rate: Annotated[LinkRate | None, field("new rate, or a fraction of the initial rate: 50%")] = None
    state: Annotated[Literal["up", "down"] | None, field("down: the link fails; up: it recovers")] = None


class Spec(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One experiment. `testbed.spec.read` makes a checked one."""

    name: Annotated[str, field("results folder name", group="results", if_unset="from the other fields")] = ""
    topo: Annotated[
        str, field("topology, or ./mine.py; with arguments as in Mininet: dumbbell,4", group="network", metavar="NAME")
    ] = "dumbbell"
    scheduler: Annotated[
        tuple[str, ...],
        field(
            "job schedulers, which place workers on hosts: spread, packed, random, or ./mine.toml; several: crossed with the systems",
            group="workload",
            metavar="NAME",
            aliases=("place",),
        ),
    ] = ("spread",)
    jobs: Annotated[int, field("number of jobs", group="workload")] = 2
    workers: Annotated[
        int | None, field("workers per job", group="workload", if_unset="as many as the trace has ranks, or 2")
    ] = None
    trace: Annotated[
        str | None,
        field(
            "trace to replay: a name of the library, or ./mine.json",
            group="workload",
            if_unset="a synthetic job",
        ),
    ] = None
    compute: Annotated[Duration | None, field("compute time per iteration of a synthetic job", group="workload")] = None
    bytes: Annotated[
        Size | None,
        field(
            "bytes per iteration of a synthetic job: sent one way by two workers, all-reduced by more",
            group="workload",
        ),
    ] = None
    buckets: Annotated[
        int | None,
        field(
            "buckets in which a synthetic job exchanges its tensor during the backward pass",
            group="workload",
            if_unset="1, after the backward pass",
        ),
    ] = None
    collective: Annotated[
        str | None,
        field(
            "all-reduce algorithm: ring, tree, parameter_server, …, or ./mine.py",
            group="workload",
            metavar="NAME",
            if_unset="ring",
        ),
    ] = None
    channels: Annotated[int, field("parallel connections per flow", group="workload")] = 1
    credit_bytes: Annotated[
        Size | None,
        field(
            "bytes that a worker may have outstanding; front layers go first, and exchanges overlap",
            group="workload",
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
            metavar="MODEL",
            if_unset="messages hold no data",
        ),
    ] = None
    job: Annotated[
        tuple[Job, ...],
        field(
            'one job; repeatable: resnet50,workers=4,offset=2s; synthetic,compute=1s,bytes=5MB; ddp:resnet18 or cmd:"python train.py" (real PyTorch, on `host`)',
            group="workload",
        ),
    ] = ()
    job_order: Annotated[
        Literal["file", "shuffled"],
        field(
            "order of jobs: that of the file, or shuffled by the seed",
            group="workload",
            old_values={"listed": "file", "drawn": "shuffled"},
            folder_name="job_order",
        ),
    ] = "file"
    system: Annotated[
        tuple[str, ...],
        field(
            "congestion controls, transports (ltp, mlt) or flow schedulers (cassini, priority) to compare; the first is the baseline",
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
    seeds: Annotated[
        int, field("number of seeds; 3 or more give confidence intervals", group="repetition", low=1, high=1000)
    ] = 1
    isolated_runs: Annotated[
        Literal["auto", "each", "first", "none"],
        field(
            "runs of a job in isolation: auto (each kind of job once, under systems that can change its time), each (kind, system and seed), first (seed), or none",
            group="repetition",
            old_names=("alone",),
        ),
    ] = "auto"
    rate: Annotated[Rate, field("bottleneck rate, each direction", group="network", low="1mbit")] = msgspec.field(
        default_factory=lambda: Rate(500_000_000)
    )
    rate_trace: Annotated[
        str | None,
        field(
            "file whose rates all bottlenecks without a rate of their own follow (mahimahi: a time in ms for each packet)",
            group="network",
            metavar="FILE",
            if_unset="constant rate",
        ),
    ] = None
    buffer: Annotated[
        QueueLength,
        field("bottleneck buffer, as time, size or frames: 1ms, 500kB, 200p", group="network", metavar="LENGTH"),
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
            old_names=("acks",),
            old_values={"mixed": "off", "first": "on"},
            folder_name="acks",
        ),
    ] = "off"
    ecn: Annotated[
        Marks,
        field(
            "ECN marking by RED: on (from a fifth of the buffer), a threshold (65kB, 200us, 40p), MIN,MAX,PROBABILITY, or off",
            group="network",
            metavar="THRESHOLDS",
            const="on",
        ),
    ] = msgspec.field(default_factory=lambda: Marks("on"))
    queue: Annotated[
        str,
        field(
            "bottleneck queue: fifo (marks by --ecn), codel, fq_codel, cake, pie, fq, sfq, or ./mine.py; with options: fq_codel:target=5ms",
            group="network",
            metavar="QUEUE",
        ),
    ] = "fifo"
    priority_queues: Annotated[
        PriorityQueues,
        field(
            "strict-priority queues by DSCP, below one for control; 4,drop-non-ect: drop what cannot be marked; 4,mlt-thresholds: MLT's; 1,separate-control: one data queue; 1: one for all",
            group="network",
            metavar="N",
            old_names=("bands",),
            folder_name="bands",
        ),
    ] = msgspec.field(default_factory=lambda: PriorityQueues("1"))
    delay: Annotated[
        Duration, field("one-way delay, added on the last hop of each path", group="network", high="1s")
    ] = msgspec.field(default_factory=lambda: Duration(0))
    jitter: Annotated[Duration, field("uniform variation of the delay; packets may be reordered", group="network")] = (
        msgspec.field(default_factory=lambda: Duration(0))
    )
    loss: Annotated[
        Loss,
        field(
            "random packet loss on the last hop: 1%, or ge:loss=80%,p=0.1%,r=5% (Gilbert-Elliott: loss in bursts, probability to enter and to leave one)",
            group="network",
            metavar="FRACTION",
        ),
    ] = msgspec.field(default_factory=lambda: Loss("0%"))
    corrupt: Annotated[
        Share,
        field("fraction of packets with one bit flipped on the last hop", group="network", metavar="FRACTION"),
    ] = msgspec.field(default_factory=lambda: Share("0%"))
    background: Annotated[
        tuple[str, ...],
        field(
            "background traffic, once for each source: long, poisson:load=0.3,sizes=websearch, incast, storage, checkpoint, inference, iperf3, cmd:command=…, each with its options",
            group="network",
            metavar="TRAFFIC",
        ),
    ] = ()
    start_offsets: Annotated[
        StartOffsets,
        field(
            "start times: clustered (within 5 % of an iteration), uniform, or one per job: 0ms,50ms,…",
            group="workload",
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
            if_unset="that of the trace",
        ),
    ] = None
    rto_min: Annotated[
        Duration | None,
        field(
            "minimum RTO, 1ms to 200ms",
            group="network",
            if_unset="200ms, the kernel's",
            low="1ms",
            high="200ms",
        ),
    ] = None
    nic: Annotated[
        NicRate,
        field(
            "NIC rate: a fraction of the link rate (100%), a rate, or inf (unshaped)",
            group="network",
            metavar="RATE",
        ),
    ] = msgspec.field(default_factory=lambda: NicRate("100%"))
    host_queue: Annotated[
        HostQueue,
        field(
            "NIC egress queue: pfifo_fast:20ms (a time or a size), fq (paces), or none (never drops)",
            group="network",
            metavar="QUEUE",
        ),
    ] = msgspec.field(default_factory=lambda: HostQueue("pfifo_fast:20ms"))
    sndbuf: Annotated[
        Size | None,
        field(
            "socket send buffer limit",
            group="network",
            if_unset="above what the path holds",
            low="4096B",
            high="2GB",
        ),
    ] = None
    slow_start_after_idle: Annotated[
        Literal[0, 1],
        field("congestion window reset after idle time: 1 (Linux's default) or 0", group="network"),
    ] = 0
    represents_rate: Annotated[
        Rate | None,
        field(
            "rate that this run represents; host limits in bytes are scaled to it",
            group="network",
            if_unset="--rate",
            old_names=("scale_of",),
        ),
    ] = None
    device: Annotated[
        str | None,
        field(
            f"device for traces that give flops: {', '.join(devices.KNOWN)}",
            group="workload",
            metavar="NAME",
            if_unset="the trace's",
        ),
    ] = None
    peak: Annotated[
        Flops | None,
        field("peak speed of the device: 312tflops", group="workload", metavar="SPEED", if_unset="the device's"),
    ] = None
    mfu: Annotated[
        Share | None,
        field(
            "model FLOPs utilization: fraction of the peak that training reaches",
            group="workload",
            metavar="FRACTION",
            if_unset="40%, or the trace's",
        ),
    ] = None
    memory: Annotated[
        Bandwidth | None,
        field("memory bandwidth of the device: 2tb/s", group="workload", metavar="BANDWIDTH", if_unset="the device's"),
    ] = None
    keep_duty: Annotated[
        bool,
        field(
            "bytes scaled by rate ÷ native rate: communication keeps its fraction of the iteration",
            group="workload",
            if_unset="unscaled",
        ),
    ] = False
    intra_server_rate: Annotated[
        Rate | None,
        field(
            "rate of exchanges between GPUs of one server",
            group="network",
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
            old_names=("messages",),
            old_values={"rounds": "per-round", "full": "per-message"},
            folder_name="messages",
        ),
    ] = "per-round"
    capture: Annotated[
        tuple[str, ...],
        field(
            "links (s1-s2, both directions) and hosts (h1) whose packets are kept, as a pcapng file each",
            group="measurement",
            metavar="PLACE",
        ),
    ] = ()
    capture_iterations: Annotated[
        str | None,
        field(
            "iterations of which packets are kept: 3-5, or 7; the numbers are those of iterations.csv",
            group="measurement",
            metavar="FIRST-LAST",
            if_unset="all",
        ),
    ] = None
    snaplen: Annotated[
        int,
        field("bytes kept of each captured packet, headers included", group="measurement", low=64, high=65000),
    ] = 96
    stop_when_periodic: Annotated[
        int,
        field(
            "identical iterations (to the nanosecond) after which a run ends and the rest is filled in; virtual time only; 0: never",
            group="repetition",
            const=3,
            low=0,
            high=1000,
        ),
    ] = 0
    on: Annotated[
        str,
        field(
            "backend: uml (user-mode Linux, virtual time), host (this kernel; root), flow (flow-level simulator), vagrant, ssh:[USER@]HOST[:PORT]; auto: uml if possible, else host",
            group="where it runs",
            metavar="BACKEND",
        ),
    ] = "auto"
    wall_limit: Annotated[
        Duration | None,
        field(
            "wall-time limit of a run",
            group="where it runs",
            if_unset="stop when nothing progresses",
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


OF_JOBS = tuple(name for name in fields.of_struct(Job) if name in fields.of_struct(Spec))  # set by jobs, too


def default_job(jobs: int, rate_bps: int, mtu: int) -> tuple[Duration, Size]:
    """The job replayed when none is named: one second alone, all of them together 96 % of the link."""
    duty = 0.96 / max(2, jobs)
    payload = duty * rate_bps / 8 * payload_share(mtu)
    return Duration(round((1 - duty) * 1e9)), Size(round(payload))

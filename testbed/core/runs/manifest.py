"""The content of a run's ``manifest.json``: the plan, the kernel's values, the measurements, and the run's provenance."""

from __future__ import annotations

from typing import Any

import msgspec

from testbed.core.runs.plan import Clock, Plan


class ReadBack(msgspec.Struct, frozen=True):
    """One setting as the kernel held it after it was applied."""

    where: str
    what: str
    value: Any  # a word, a number, or a table of them


class Loaded(msgspec.Struct, frozen=True):
    """A congestion control as it was loaded; ``constants``: its parameters as the kernel holds them, empty if it has
    none."""

    spec: str
    registered_as: str
    kind: str
    constants: dict[str, int]


class Counters(msgspec.Struct, frozen=True):
    """Losses where none are intended, and the machine's own trouble; ``packets`` received anywhere."""

    interface_dropped: int
    interface_errors: int
    packets: int
    softnet_dropped: int
    softnet_squeezed: int
    tcp_timeouts: int


class SendingTime(msgspec.Struct, frozen=True):
    """Time in which a job's flows had data to send, and the part limited by other causes than congestion control, in s."""

    job: int
    busy_s: float
    receive_window_s: float
    send_buffer_s: float

    @property
    def limited_share(self) -> float:
        """Fraction of the sending time that was limited."""
        return (self.receive_window_s + self.send_buffer_s) / self.busy_s


class Sampling(msgspec.Struct, frozen=True):
    """Cost of sampling, and the load of the machine's cores in each second of the run (0…1)."""

    samples: int
    cpu_s: float
    wall_s: float
    slowest_link_read_us: float
    busiest_core: tuple[float, ...]
    steal: tuple[float, ...]
    events_missed: tuple[str, ...]


class Crossing(msgspec.Struct, frozen=True):
    """The directions of bottlenecks that a flow crosses."""

    job: int
    worker: int
    flow: str
    links: tuple[str, ...]


class Way(Crossing, frozen=True):
    """The links that a flow took among paths of equal length, and those that its ACKs took."""

    back: tuple[str, ...]


class Period(msgspec.Struct, frozen=True):
    """Period that ended a run early: each job's iterations from ``carried`` on are filled in."""

    period_s: float  # of every job
    alike: int  # identical iterations in a row, to the nanosecond, including TCP's state of each flow at their ends
    carried: tuple[int, ...]  # iterations that were run, by job


class Datagrams(msgspec.Struct, frozen=True):
    """Totals of a worker whose transport uses UDP: datagrams sent and received, over all of its sockets."""

    job: int
    worker: int
    sent: int
    received: int
    burst: int  # most of them with data that left to a peer at one instant
    not_sent: int  # datagrams that its host rejected
    overflowed: int  # datagrams dropped because socket buffers were full
    wake_ups: int
    tagged: int = 0  # packets of gradients that a rule looked at (MLT)
    important: int = 0  # number of these that a switch may not drop


class Measured(msgspec.Struct, frozen=True, omit_defaults=True):
    """Measurements of the network, in addition to those of its jobs."""

    build_network_s: float
    capacity_bps: float | None  # of the unshaped path; None: not measured in this experiment
    rtt_us_before: float
    rtt_us_after: float
    counters: Counters
    clock_drift_s: float
    congestion_control_repairs: int | None  # None: not counted
    sampler: Sampling
    paths: tuple[Way, ...]
    paths_seeded: bool | None  # None: every path is the only one
    tcp: dict[str, int] | None = None  # the kernel's own names; None: an older testbed did not record it
    senders: tuple[SendingTime, ...] | None = None
    period: Period | None = None  # None: every iteration was run
    datagrams: tuple[Datagrams, ...] | None = None  # None: there were none, or an older testbed did not record them


class Recorded(msgspec.Struct, frozen=True):
    """The recording of disturbances, from ``noted_from_s`` on every ``period_s`` (both in s); ``refused``: records
    that the kernel denied."""

    cores: tuple[int, ...]
    period_s: float
    noted_from_s: float
    ticks: int
    cpu_s: float
    refused: tuple[str, ...]


class Attempt(msgspec.Struct, frozen=True):
    """One attempt at a run, and why it is invalid if it is."""

    started: str
    wall_s: float
    verdict: str
    because: tuple[str, ...]


class Build(msgspec.Struct, frozen=True):
    """Identity of a user-mode Linux kernel."""

    version: str
    source: str
    compiler: str
    config_sha256: str
    image_sha256: str


class UserModeLinux(Build, frozen=True):
    """And with which congestion controls; ``shipped``: it came with the installed wheel, and was not built here."""

    modules: str
    shipped: bool = False

    @property
    def content(self) -> UserModeLinux:
        """Return a copy without its origin: equal for equal kernels and modules."""
        return msgspec.structs.replace(self, shipped=False)


class Remote(msgspec.Struct, frozen=True):
    """Another machine, by its own words and its host key."""

    hostname: str
    kernel: str
    cpus: int | None
    python: str
    packages: dict[str, str | None] | str
    on: str
    host_key: str


class Told(msgspec.Struct, frozen=True, omit_defaults=True):
    """The data that the Linux of a run returns."""

    version: int
    plan: Plan
    settings: tuple[ReadBack, ...]
    congestion_controls: tuple[Loaded, ...]
    kernel: str
    python: str
    measured: Measured
    crossings: tuple[Crossing, ...] | None = None  # None: an older testbed did not record them
    # Every option of each with its value; None: only the kernel's, or not recorded.
    transports: dict[str, dict[str, str]] | None = None
    shell: tuple[str, ...] = ()  # lines typed in a shell of the run that may have changed something


class Asked(msgspec.Struct, frozen=True):
    """The experiment that a run is part of, but its name and seeds."""

    fields: dict[str, Any]  # those that are not their default, as they are typed; files by their names alone
    files: dict[str, str]  # SHA-256 of each file that they name


class Provenance(msgspec.Struct, frozen=True):
    """Program, kernel, and machine that made a run."""

    testbed: str
    backend: str
    clock: Clock
    uml: UserModeLinux | None
    remote: Remote | None
    packages: dict[str, str]
    git_commit: str | None  # with ``+changes`` if the checkout differed from it; None: outside a checkout
    source_sha256: str  # of all source files that affect a run
    command: tuple[str, ...]
    started: str
    wall_s: float
    topology_sha256: str | None  # of a topology from outside the checkout
    congestion_control_sha256: dict[str, str]  # of congestion controls from outside the checkout, by their specs
    asked: Asked | None = None  # None: an older testbed did not record it


class Manifest(Told, frozen=True, kw_only=True, omit_defaults=True):
    """All metadata of a run, in addition to its tables: the fields of `Provenance` and of `Told` at one level."""

    testbed: str
    backend: str
    clock: Clock
    uml: UserModeLinux | None
    remote: Remote | None
    packages: dict[str, str]
    git_commit: str | None
    source_sha256: str
    command: tuple[str, ...]
    started: str
    wall_s: float
    topology_sha256: str | None
    congestion_control_sha256: dict[str, str]
    asked: Asked | None = None
    digest: str  # over its tables
    scheduler: str | None = None  # job scheduler of the plan; None: an older testbed did not record it
    disturbances: Recorded | None = None  # None: a clock that nothing disturbs
    attempts: tuple[Attempt, ...] = ()

    @property
    def made(self) -> Provenance:
        """Program, kernel, and machine that made the run."""
        return Provenance(**{name: getattr(self, name) for name in Provenance.__struct_fields__})

    @classmethod
    def assemble(cls, reported: Told, made: Provenance, digest: str, disturbances: Recorded | None) -> Manifest:
        """The manifest of a run that has no verdict yet."""
        fields = {**msgspec.structs.asdict(reported), **msgspec.structs.asdict(made)}
        return cls(**fields, digest=digest, scheduler=reported.plan.scheduler, disturbances=disturbances)

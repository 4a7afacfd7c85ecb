"""The content of an experiment's ``summary.json``: each system in numbers, and the result of the comparison. Times in seconds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import msgspec

from testbed.core.placing import Metrics
from testbed.core.runs.findings import Finding, OfferedLoad
from testbed.core.runs.plan import Clock, Role
from testbed.core.runs.verdict import Row, Word

Ends = tuple[float, float]  # of an interval at 95 %


class JobResult(msgspec.Struct, frozen=True, kw_only=True):
    """One job over all seeds."""

    job: int
    trace: str
    system: str  # the system, as typed
    congestion: str = ""  # its congestion control
    learns: bool  # it runs MLTCP
    windowed: bool = True  # by a congestion window; False: it paces by a rate
    workers: int
    iterations: int = 0  # measured iterations of the first seed; 0: an older testbed did not record them
    mean_s: float
    p99_s: float
    last10_mean_s: float
    ideal_s: float | None  # None: a real program
    isolated_s: float | None  # None: it was not measured
    isolated_in: str | None = None  # the system whose run gave it, as typed
    speedup_mean: float  # the baseline's mean ÷ this one's
    speedup_mean_ci95: Ends | None  # None: fewer than three seeds
    speedup_p99: float
    speedup_p99_ci95: Ends | None


@dataclass(frozen=True, kw_only=True)
class Schedule(Metrics):
    """Jobs that hold GPUs, as a schedule: means over seeds, but for ``min_`` and ``max_``, which are over all of them."""

    makespan_s_ci95: Ends | None  # None: fewer than three seeds
    mean_completion_s_ci95: Ends | None
    alone: Literal[
        "measured", "ideal"
    ]  # source of the isolated time on the servers that a job got; on fewer ones it is the ideal


class Completion(msgspec.Struct, frozen=True):
    """Flow completion times, or latencies, of flows of some sizes."""

    sizes: str  # in words
    flows: int
    mean_s: float
    p50_s: float
    p99_s: float


class Traffic(msgspec.Struct, frozen=True):
    """One source of background traffic over all seeds."""

    label: str
    flows: int  # that began
    unfinished: int  # when the run ended
    failed: int
    goodput_bps: float  # received bits per second, from the first start to the last end
    completions: tuple[Completion, ...]  # all sizes first, then each class that has flows; empty: none ended


class Result(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One system over all seeds and jobs."""

    system: str  # as typed
    scheduler: str | None = None  # job scheduler, as typed; None: an older testbed did not record it
    role: Role
    seeds: tuple[int, ...]
    jobs: int
    iterations: int
    mean_s: float
    mean_s_ci95: Ends | None
    p50_s: float
    p95_s: float
    p99_s: float
    last10_mean_s: float
    last10_mean_s_ci95: Ends | None
    ideal_s: float | None
    isolated_s: float | None
    mltcp_active_from: float | int | None  # None: never
    interleaved_at: float | int | None  # None: not in half of the seeds, or unknown
    interleaved_seeds: str | None  # ``2 of 3``; None: unknown, since there is one job only, or no isolated time
    per_job: tuple[JobResult, ...]
    verdicts: tuple[Word, ...]
    disturbed_iterations: int | msgspec.UnsetType = msgspec.UNSET  # this and the next two: on real clocks alone
    undisturbed_mean_s: float | msgspec.UnsetType | None = msgspec.UNSET
    undisturbed_last10_mean_s: float | msgspec.UnsetType | None = msgspec.UNSET
    speedup_mean: float
    speedup_mean_ci95: Ends | None
    speedup_p99: float
    speedup_p99_ci95: Ends | None
    delivered: float | None = None  # delivered fraction of gradient bytes; None: lossless transport
    important_fraction: float | None = None  # fraction of packets tagged as important; None: no tags
    conclusion: str | None  # `findings` in words
    findings: tuple[Finding, ...] = ()
    repeatability: Row | None = None  # I10, over the seeds; None: an older testbed did not compute it
    background: tuple[Traffic, ...] = ()  # results of background traffic
    schedule: Schedule | None = None  # None: jobs hold no GPUs, a seed ended none, or it is older


class Summary(msgspec.Struct, frozen=True, kw_only=True):
    """The summary of one experiment."""

    version: int
    experiment: str
    backend: str
    clock: Clock
    baseline: str
    verdict: Word
    offered_load: float | None  # of the busiest bottleneck's rate; None: unknown
    overloads: tuple[OfferedLoad, ...] = ()  # bottlenecks whose offered load exceeds their rate
    results: tuple[Result, ...]

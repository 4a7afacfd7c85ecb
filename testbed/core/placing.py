"""The assignment of GPUs to jobs over time: requests, assignments, and the resulting metrics."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Gpu:
    """A GPU of a server, by slot."""

    host: str
    slot: int = 0


@dataclass(frozen=True, slots=True)
class Request:
    """A job's request for GPUs.

    ``compute_s`` is the forward and backward time of one iteration (complete mini-batch), in seconds.
    """

    job: int
    gpus: int
    iterations: int = 0
    gradient_bytes: int = 0
    compute_s: float = 0.0
    arrival_s: float = 0.0


@dataclass(frozen=True)
class At:
    """A start at this time."""

    s: float


@dataclass(frozen=True)
class After:
    """A start as soon as these jobs have ended."""

    jobs: tuple[int, ...]


@dataclass(frozen=True)
class Stint:
    """A time without interruption in which a job holds GPUs; in seconds."""

    gpus: tuple[Gpu, ...]  # by rank
    start_s: float
    end_s: float
    iterations: float  # completed iterations
    restart_s: float = 0.0  # seconds at its start until the job made progress again


@dataclass(frozen=True)
class Assignment:
    """The servers and GPUs of one job."""

    job: int
    gpus: tuple[Gpu, ...]  # by rank
    start: At | After  # never before it has arrived
    estimate_s: float  # duration in seconds by the scheduler's model
    stints: tuple[Stint, ...] = ()  # its times on GPUs if it is stopped in between; else empty


@dataclass(frozen=True)
class Assignments:
    """The assignment of every job, in the order of the requests."""

    jobs: tuple[Assignment, ...]
    trials: int = 1  # schedules that were evaluated to find this one


@dataclass(frozen=True)
class Idle:
    """GPU-hours without useful computation or communication until the last job has ended, by cause."""

    fragment: float  # jobs wait, and each needs more GPUs than are free
    waiting: float  # jobs wait although enough GPUs are free: the policy delays them
    contention: float  # held by jobs that others slow down, or that restart
    no_job: float  # no job waits


@dataclass(frozen=True)
class Metrics:
    """Metrics of a complete schedule; times in seconds, completion and queueing since arrival.

    *Isolated* means on an empty cluster, on the fewest servers that hold the job. Completion, queueing, slowdown, ρ and Jain's
    index cover the jobs that ended; they are NaN if none did. The other metrics cover all jobs until the last one ended, or until
    the schedule was cut off; the makespan of such a schedule is NaN.
    """

    makespan_s: float
    mean_completion_s: float
    min_completion_s: float
    p95_completion_s: float
    max_completion_s: float
    mean_queueing_s: float  # without GPUs
    p95_queueing_s: float
    mean_slowdown: float  # completion ÷ alone
    max_rho: float  # the worst finish-time fairness
    jain: float  # Jain's index of alone ÷ completion: 1 if all are slowed down equally
    utilisation: float  # GPU-seconds held ÷ GPUs · makespan
    max_contention: int
    mean_contention: float  # p over the time in which jobs span servers; 0 if none does
    idle_gpu_h: Idle

"""Who gets which GPUs and when: what a job asks for, what it is given."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Gpu:
    """One of a server's."""

    host: str
    slot: int = 0


@dataclass(frozen=True)
class Request:
    """What a job asks for. ``compute_s`` is of an iteration: forward and backward, by the whole mini-batch."""

    job: int
    gpus: int
    iterations: int = 0
    gradient_bytes: int = 0
    compute_s: float = 0.0
    arrives_s: float = 0.0


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
    iterations: float  # that it came on by
    restart_s: float = 0.0  # of it, until the job got on from where it was


@dataclass(frozen=True)
class Assignment:
    """What a job gets."""

    job: int
    gpus: tuple[Gpu, ...]  # by rank
    start: At | After  # never before it has arrived
    estimate_s: float  # how long it will take, by the scheduler's model
    stints: tuple[Stint, ...] = ()  # by the clock, where jobs are stopped in between: all of them; else it runs through


@dataclass(frozen=True)
class Assignments:
    """What every job gets, in the order of the requests."""

    jobs: tuple[Assignment, ...]
    trials: int = 1  # schedules that were evaluated to find this one

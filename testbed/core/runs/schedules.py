"""Computed schedules as a table: ``schedules.csv`` with a row for each, and ``schedules.json`` with the request and
its provenance.

They lie in an experiment folder (``results/sjf-makespan/``) instead of run directories, because nothing was emulated.
"""

from __future__ import annotations

import hashlib
from typing import Literal

import msgspec

TABLE, ABOUT = "schedules.csv", "schedules.json"
KEYS = ("setting", "servers", "seed", "scheduler")
IDLE = ("idle_fragment_gpu_h", "idle_waiting_gpu_h", "idle_contention_gpu_h", "idle_no_job_gpu_h")
NUMBERS = (
    "trials", "makespan_s", "mean_completion_s", "min_completion_s", "p95_completion_s", "max_completion_s", "mean_queueing_s",
    "p95_queueing_s", "mean_slowdown", "max_rho", "jain", "utilisation", "max_contention", "mean_contention", *IDLE,
)  # fmt: skip

# Sampled for each seed: the job mix of the SJF-BCO paper's simulation, or a few jobs on one server without communication.
Jobs = Literal["published", "few"]


class Setting(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Communication of jobs, its largest effect, and the other values that the paper leaves open, where they differ
    from the defaults."""

    name: str
    ratio: float = 0.0  # communication time of a large ring in isolation ÷ its computing time
    most: float | None = None  # largest fraction of an iteration spent exchanging, under any contention
    unlimited: bool = False  # uplinks: b_e → ∞
    alpha: float | None = None  # without it the experiment's
    xi1: float = 1.0
    xi2_s: float = 0.0  # γ = ξ2 · servers
    intra: float | None = None  # b_i, in uplinks; without it no limit
    reduce: float | None = None  # C, in uplinks; without it no limit
    load: float | None = None  # fraction of the GPUs that Poisson arrivals request; None: all jobs arrive at the start
    gpus: int | None = None  # GPUs of each server; None: sampled from 4, 8, 16 and 32
    options: str = ""  # ``option=value,…``, for every scheduler that has them
    largest: int | None = None  # few jobs: the number of GPUs of the largest one
    seconds: tuple[float, ...] = ()  # few jobs: jobs of one GPU with these run times, instead of random ones


class Asked(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An experiment of schedules."""

    name: str
    kind: Literal["schedules"]
    jobs: Jobs = "published"
    setting: tuple[Setting, ...]
    servers: tuple[int, ...] = (20,)
    scheduler: tuple[str, ...]  # as typed; ``{trials}`` in it: as many as the first one evaluated
    alpha: float = 0.3
    seeds: int = 10


class Made(msgspec.Struct, frozen=True, kw_only=True):
    """Program and settings that made a table of schedules."""

    version: int
    experiment: str
    asked: Asked
    testbed: str
    source_sha256: str
    git_commit: str | None
    python: str
    packages: dict[str, str]
    command: tuple[str, ...]
    started: str
    wall_s: float
    digest: str  # of the table


def digest(table: bytes) -> str:
    """Return the SHA-256 of ``schedules.csv`` in hexadecimal."""
    return hashlib.sha256(table).hexdigest()

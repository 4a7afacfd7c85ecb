"""A few jobs on one server without communication, so that all their schedules can be evaluated.

The constants of SJF-BCO's Theorem 5 are known there: no placement is slower than another, so φ = u = l = 1.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

from testbed.core.placing import Gpu, Request

Instance = tuple[list[Request], tuple[Gpu, ...]]


def drawn(seed: int, largest: int) -> Instance:
    """Sample four to seven jobs of 1 to 5 s (whole seconds), the largest with ``largest`` GPUs, and a server with up
    to three more."""
    draw = random.Random(f"few jobs {seed} {largest}")
    sizes = [largest, *(draw.randint(1, largest) for _ in range(draw.randint(3, 6)))]
    draw.shuffle(sizes)
    jobs = [Request(job, gpus, draw.randint(1, 5), 0, 1.0) for job, gpus in enumerate(sizes)]
    return jobs, _server(draw.randint(max(2, largest), largest + 3))


def single(seconds: Sequence[float]) -> Instance:
    """Jobs of one GPU that take so long, on two GPUs."""
    return [Request(job, 1, 1, 0, took_s) for job, took_s in enumerate(seconds)], _server(2)


def _server(gpus: int) -> tuple[Gpu, ...]:
    return tuple(Gpu("h1", slot) for slot in range(gpus))

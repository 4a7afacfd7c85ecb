"""The jobs of SJF-BCO's simulation, sampled: 160 of them, scaled down from the Microsoft trace.

Source: Yu, Ji, Rajan, Liu, MobiHoc 2022 (technical report): sizes, F in [1000, 6000], τ in [0.01, 0.05] slots, ρ̂ in [50, 300]
slots, servers of 4, 8, 16 or 32 GPUs. A slot is a second here. Not published and ours: gradients, given by how long their
exchange alone takes against an iteration's computing (2 m / b_e ÷ compute); the jobs' order; uniform distributions.
"""

from __future__ import annotations

import random

from testbed.core.placing import Gpu, Request

SIZES = {1: 80, 2: 14, 4: 26, 8: 30, 16: 8, 32: 2}
RATE_BPS = 1e9
SERVER_GPUS = (4, 8, 16, 32)


def jobs(seed: int, ratio: float, sizes: dict[int, int] | None = None) -> list[Request]:
    """Jobs in a random order; ``ratio``: communication alone ÷ computing of a large ring."""
    draw = random.Random(f"published jobs {seed}")
    gpus = [size for size, count in (sizes or SIZES).items() for _ in range(count)]
    draw.shuffle(gpus)
    requests = []
    for job, wanted in enumerate(gpus):
        iterations, compute_s = 0, 0.0
        while not 50 <= iterations * compute_s <= 300:
            iterations, compute_s = draw.randint(1000, 6000), draw.uniform(0.01, 0.05)
        requests.append(Request(job, wanted, iterations, round(ratio * compute_s * RATE_BPS / 16), compute_s))
    return requests


def servers(seed: int, count: int, largest: int = 32, gpus: int | None = None) -> tuple[Gpu, ...]:
    """GPUs of so many servers, each with ``gpus``, or sampled again until they hold the ``largest`` job."""
    draw = random.Random(f"published servers {seed}")
    sizes = [0] if gpus is None else [gpus] * count
    while gpus is None and sum(sizes) < largest:
        sizes = [draw.choice(SERVER_GPUS) for _ in range(count)]
    return tuple(Gpu(f"h{host}", slot) for host, size in enumerate(sizes, 1) for slot in range(size))

"""Time and peak memory of every heuristic for a long list of jobs: ``python -m benchmarks.job_lists [JOBS] [SCHEDULER …]``.

20,000 jobs (the default) or 100,000 on 800 GPUs in 100 servers. They arrive all at the beginning, or at random at a load of
0.9. Every scheduler runs in a separate process. The bounds: 20 s for 20,000 jobs; 2 min and 2 GB for 100,000 with fifo,
first_fit and srsf.
"""

from __future__ import annotations

import multiprocessing
import random
import resource
import sys
import time

from testbed.core.placing import Gpu, Request
from testbed.models.contention import Model
from testbed.planning import schedules
from testbed.traces import job_lists

SERVERS, EACH = 100, 8
HEURISTICS = (
    "fifo",
    "first_fit",
    "srsf",
    "tightest_fit",
    "list_scheduling",
    "lwf",
    "random",
    "reservation",
    "cassini",
    "las",
    "sjf_bco",
)
LONG = ("fifo", "first_fit", "srsf")
SEARCHES = ("sjf_bco",)  # plan every moment anew as jobs arrive
SIZES = (1, 1, 1, 1, 2, 2, 4, 4, 8, 8, 16, 32)


def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 20_000
    for name in sys.argv[2:] or (HEURISTICS if count <= 20_000 else LONG):
        for load in (None,) if name in SEARCHES else (None, 0.9):
            with multiprocessing.get_context("spawn").Pool(1) as pool:
                wall_s, cpu_s, memory_mb = pool.apply(measured, (name, count, load))
            arriving = "all there" if load is None else f"load {load:g}"
            print(
                f"{count} jobs, {arriving}: {name} {wall_s:.1f} s ({cpu_s:.1f} s of CPU time), {memory_mb:.0f} MB",
                flush=True,
            )


def measured(name: str, count: int, load: float | None) -> tuple[float, float, float]:
    """Wall-clock and CPU time in seconds, and peak memory in MB, of planning and carrying out."""
    draw = random.Random("job lists")
    requests = [
        Request(
            job,
            draw.choice(SIZES),
            draw.randint(100, 5000),
            draw.choice((10**7, 10**8, 5 * 10**8)),
            draw.choice((0.02, 0.1, 0.3)),
        )
        for job in range(count)
    ]
    if load is not None:
        requests = job_lists.poisson(requests, SERVERS * EACH, load, 1)
    gpus = tuple(Gpu(f"h{host}", slot) for host in range(SERVERS) for slot in range(EACH))
    begun = time.perf_counter(), time.process_time()
    schedules.carry_out(name, requests, gpus, Model(10e9), 1)
    took = time.perf_counter() - begun[0], time.process_time() - begun[1]
    return *took, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


if __name__ == "__main__":
    main()

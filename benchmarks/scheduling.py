"""How long scheduling takes as clusters and lists of jobs grow: ``python benchmarks/scheduling.py [LARGEST|slopes] [SCHEDULER …]``.

The published mix scaled up, its largest job 256 GPUs, communication half of computing. Prints the CPU time of one core for planning
(every trial simulated), the trials, and the most memory. `LARGEST`: 10000 jobs on as many GPUs, by default. ``slopes``: how the time of a
trial grows with jobs alone and with GPUs alone, beside Theorem 6.
"""

from __future__ import annotations

import math
import resource
import sys
import time
from collections.abc import Sequence

import job_schedulers
from core import options
from core.placing import Gpu, Request
from job_schedulers import Cluster
from theory.contention import Model
from workloads import published_mix

SERVER_GPUS = 15  # in the mean


def main() -> None:
    if sys.argv[1:2] == ["slopes"]:
        for name in sys.argv[2:] or ("sjf_bco",):
            slopes(name)
        return
    largest = int(sys.argv[1]) if len(sys.argv) > 1 else 10_000
    for count in sorted({largest // 16, largest // 4, largest}):
        scale = max(1, count // 165)
        sizes = {size: number * scale for size, number in published_mix.SIZES.items()} | {
            64: scale,
            128: scale,
            256: scale,
        }
        requests = published_mix.jobs(1, 0.5, sizes)
        gpus = published_mix.servers(1, max(20, count // SERVER_GPUS), 256)
        for name in sys.argv[2:] or ("tightest_fit", "first_fit", "list_scheduling", "sjf_bco"):
            took, trials = planned(name, requests, gpus)
            most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
            print(
                f"{len(requests)} jobs on {len(gpus)} GPUs: {name} {took:.1f} s for {trials} schedules, {most:.2f} GiB",
                flush=True,
            )


def planned(name: str, requests: Sequence[Request], gpus: tuple[Gpu, ...]) -> tuple[float, int]:
    """CPU time in s, and how many schedules were evaluated."""
    module, begun = job_schedulers.find(name.partition(":")[0]), time.process_time()
    assigned = module.schedule(
        requests, Cluster({"s1": gpus}, lambda _job: ["s1"]), Model(published_mix.RATE_BPS),
        options.parse(module.Options, name), seed=1,
    )  # fmt: skip
    return time.process_time() - begun, assigned.trials


def slopes(name: str) -> None:
    """Theorem 6, n_g |J| N log N log T: 1 with jobs, 1 + 1 ÷ ln N with GPUs. Slopes between logarithms, of the time of a trial."""
    points = []
    for scale, servers in ((2, 80), (8, 80), (8, 320)):
        requests = published_mix.jobs(1, 0.5, {size: number * scale for size, number in published_mix.SIZES.items()})
        gpus = published_mix.servers(1, servers)
        took, trials = planned(name, requests, gpus)
        points.append((len(requests), len(gpus), took / trials))
    few, more_jobs, more_gpus = points
    with_jobs = math.log(more_jobs[2] / few[2]) / math.log(more_jobs[0] / few[0])
    with_gpus = math.log(more_gpus[2] / more_jobs[2]) / math.log(more_gpus[1] / more_jobs[1])
    print(
        f"{name}: {with_jobs:.2f} with jobs (Theorem 6: 1), {with_gpus:.2f} with GPUs ({1 + 1 / math.log(more_gpus[1]):.2f})"
    )


if __name__ == "__main__":
    main()

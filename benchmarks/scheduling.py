"""How long scheduling takes as clusters and lists of jobs grow: ``python benchmarks/scheduling.py [LARGEST] [SCHEDULER …]``.

The published mix scaled up, its largest job 256 GPUs, communication half of computing. Prints the CPU time of one core for planning
(every trial simulated), the trials, and the most memory. `LARGEST`: 10000 jobs on as many GPUs, by default.
"""

from __future__ import annotations

import resource
import sys
import time

import job_schedulers
from core import options
from job_schedulers import Cluster
from theory.contention import Model
from workloads import published_mix

SERVER_GPUS = 15  # in the mean


def main() -> None:
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
            module, begun = job_schedulers.find(name.partition(":")[0]), time.process_time()
            assigned = module.schedule(
                requests, Cluster({"s1": gpus}, lambda _job: ["s1"]), Model(published_mix.RATE_BPS),
                options.parse(module.Options, name), seed=1,
            )  # fmt: skip
            took, most = time.process_time() - begun, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
            print(
                f"{len(requests)} jobs on {len(gpus)} GPUs: {name} {took:.1f} s for {assigned.trials} schedules, {most:.2f} GiB",
                flush=True,
            )


if __name__ == "__main__":
    main()

"""Scheduling time by size of clusters and lists of jobs: ``python benchmarks/scheduling.py [LARGEST|slopes] [SCHEDULER
…] [--png FILE]``.

The published mix scaled up, its largest job 256 GPUs, communication half of computing. Prints the CPU time of one core
for planning (every trial simulated), the trials, and the peak memory. `LARGEST`: 10000 jobs on as many GPUs, by
default. ``slopes``: growth of the time of a trial with only jobs and with only GPUs, next to Theorem 6; ``--png`` draws
it.
"""

from __future__ import annotations

import argparse
import math
import resource
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from testbed.core.placing import Gpu, Request
from testbed.models.contention import Model
from testbed.planning import published_mix
from testbed.report import drawing, style
from testbed.schedulers import job
from testbed.schedulers.job import Cluster

SERVER_GPUS = 15  # mean number of GPUs of a server
SCALES, SERVERS = (2, 4, 8, 16), (20, 40, 80, 160, 320)  # of slopes: mixes, on 80 servers; servers, for 8 mixes
MIXES, USUAL_SERVERS = 8, 80


@dataclass(frozen=True)
class Point:
    """A list of jobs on a cluster, and the CPU time of one evaluated schedule."""

    jobs: int
    gpus: int
    trial_s: float


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", nargs="?", default="10000", metavar="LARGEST|slopes")
    parser.add_argument("schedulers", nargs="*", metavar="SCHEDULER")
    parser.add_argument("--png", type=Path)
    parsed = parser.parse_args()
    if parsed.what != "slopes":
        sizes(int(parsed.what), parsed.schedulers or ("tightest_fit", "first_fit", "list_scheduling", "sjf_bco"))
        return
    found = {name: grown(name) for name in parsed.schedulers or ("sjf_bco",)}
    if parsed.png:
        draw(parsed.png, found)


def sizes(largest: int, schedulers: Sequence[str]) -> None:
    """Print times for three sizes, with as many jobs as GPUs."""
    for count in sorted({largest // 16, largest // 4, largest}):
        scale = max(1, count // 165)
        mix = {size: number * scale for size, number in published_mix.SIZES.items()} | {
            64: scale,
            128: scale,
            256: scale,
        }
        requests = published_mix.jobs(1, 0.5, mix)
        gpus = published_mix.servers(1, max(20, count // SERVER_GPUS), 256)
        for name in schedulers:
            took, trials = planned(name, requests, gpus)
            most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
            print(
                f"{len(requests)} jobs on {len(gpus)} GPUs: {name} {took:.1f} s for {trials} schedules, {most:.2f} GiB",
                flush=True,
            )


def planned(name: str, requests: Sequence[Request], gpus: tuple[Gpu, ...]) -> tuple[float, int]:
    """CPU time in s, and how many schedules were evaluated."""
    (module, chosen), begun = job.parse(name), time.process_time()
    assigned = module.schedule(
        requests, Cluster({"s1": gpus}, lambda _job: ["s1"]), Model(published_mix.RATE_BPS),
        chosen, seed=1,
    )  # fmt: skip
    return time.process_time() - begun, assigned.trials


def grown(name: str) -> tuple[list[Point], list[Point]]:
    """Return the points with more jobs and with more GPUs; print the slopes between logarithms next to those of
    Theorem 6."""
    with_jobs = [_point(name, scale, USUAL_SERVERS) for scale in SCALES]
    with_gpus = [_point(name, MIXES, servers) for servers in SERVERS]
    of_jobs, of_gpus = (
        slope([one.jobs for one in with_jobs], with_jobs),
        slope([one.gpus for one in with_gpus], with_gpus),
    )
    least, most = (1 + 1 / math.log(with_gpus[end].gpus) for end in (-1, 0))
    print(f"{name}: {of_jobs:.2f} with jobs (Theorem 6: 1), {of_gpus:.2f} with GPUs ({least:.2f} to {most:.2f})")
    return with_jobs, with_gpus


def _point(name: str, scale: int, servers: int) -> Point:
    requests = published_mix.jobs(1, 0.5, {size: number * scale for size, number in published_mix.SIZES.items()})
    gpus = published_mix.servers(1, servers)
    took, trials = planned(name, requests, gpus)
    print(
        f"{name}: {len(requests)} jobs on {len(gpus)} GPUs: {1e3 * took / trials:.1f} ms a schedule, {trials} of them",
        flush=True,
    )
    return Point(len(requests), len(gpus), took / trials)


def slope(over: Sequence[int], points: Sequence[Point]) -> float:
    """The power that the time of a trial grows with."""
    return float(np.polyfit(np.log(over), np.log([one.trial_s for one in points]), 1)[0])


def draw(path: Path, found: dict[str, tuple[list[Point], list[Point]]]) -> None:
    """The time of a trial over jobs and over GPUs; dashed what Theorem 6 has it grow like, through each scheduler's first point."""
    figure, axes = style.new_figure(1, 2, figsize=(9.6, 3.9), sharey=True)
    growths: tuple[tuple[str, Callable[[Point], int], Callable[[int], float]], ...] = (
        ("jobs", lambda one: one.jobs, float),
        ("GPUs", lambda one: one.gpus, lambda gpus: gpus * math.log(gpus)),
    )
    for number, (axis, (what, of, bound)) in enumerate(zip(axes[0], growths, strict=True)):
        for (name, both), colour in zip(found.items(), style.JOBS, strict=False):
            points = both[number]
            over = [of(one) for one in points]
            times_ms = [1e3 * one.trial_s for one in points]
            axis.plot(over, times_ms, "o-", color=colour, label=f"{name}: {what}^{slope(over, points):.2f}")
            axis.plot(
                over,
                [times_ms[0] * bound(x) / bound(over[0]) for x in over],
                "--",
                color=colour,
                linewidth=1,
                alpha=0.7,
            )
        axis.plot(
            [], [], "--", color=style.REFERENCE, label="Theorem 6: " + ("jobs" if what == "jobs" else "GPUs · log GPUs")
        )
        for which in (axis.xaxis, axis.yaxis):
            drawing.plain_log(which)
        axis.set_xticks(over, [str(x) for x in over])
        axis.set_xlabel(what)
        axis.legend(loc="upper left", fontsize=8)
    few_jobs, few_gpus = (points[0] for points in next(iter(found.values())))
    axes[0][0].set(ylabel="processor time of a schedule (ms)", title=f"{few_jobs.gpus} GPUs")
    axes[0][1].set(title=f"{few_gpus.jobs} jobs")
    style.save(figure, path.with_suffix(""))


if __name__ == "__main__":
    main()

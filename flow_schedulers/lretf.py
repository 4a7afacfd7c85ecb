"""LRETF: the link belongs to the job with the longest remaining execution time; the others send while it does not.

Source: Yu, Liu, "Contention-Free All-Reduce Learning Jobs Scheduling in Multi-Tenant GPU Computing Clusters" (SJF-BCO's companion
paper): one job communicates at a time, the one with the longest remaining time first; with preemption that is optimal there, without
it a 2-approximation.

Simplified: the form with preemption, by strict priority on bottlenecks (as `flow_schedulers.priority`), so that packets and not jobs
take turns; remaining time is iterations × an iteration alone, looked at once, when the jobs start; eight ranks, so that of more jobs
neighbours share one. The form without preemption takes a lock that hosts hand on to each other, which is not there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from core.options import option
from flow_schedulers import Demand, Rule, ScheduleError, Sharing
from workloads.bands import MOST


@dataclass(frozen=True)
class Options:
    over: str = option("reno", "the congestion control that carries the bytes; reno", str)


def share(jobs: Sequence[Demand], links: Mapping[str, float], options: Options) -> Sharing:
    """A band for each job, for all of its bytes: the longer it still runs, the higher."""
    remaining_s = []
    for number, job in enumerate(jobs):
        if job.iteration_s is None or not job.iterations:
            raise ScheduleError(
                f"LRETF needs to know how long a job still runs, and job {number} is a real program, or goes on without a count."
            )
        remaining_s.append(job.iterations * job.iteration_s)
    order = sorted(range(len(jobs)), key=lambda number: (remaining_s[number], -number))
    ranks = {number: place * min(MOST, len(jobs)) // len(jobs) for place, number in enumerate(order)}
    return Sharing(
        tuple(Rule(options.over, bands=(job.bytes,) * ranks[number]) for number, job in enumerate(jobs)),
        {"remaining_s": remaining_s, "ranks": [ranks[number] for number in range(len(jobs))]},
    )

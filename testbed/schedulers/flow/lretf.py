"""LRETF: the job with the longest remaining execution time has precedence on a link; others send while it does not.

Source: Yu, Liu, "Contention-Free All-Reduce Learning Jobs Scheduling in Multi-Tenant GPU Computing Clusters" (SJF-BCO's
companion paper): one job communicates at a time, the one with the longest remaining time first. With preemption that is
optimal there, without it a 2-approximation.

Simplifications with preemption: strict priority on bottlenecks (as in `testbed.schedulers.flow.priority`), so that
packets instead of jobs alternate. The remaining time is iterations × isolated iteration, evaluated once, when the jobs
start. There are eight ranks, so with more jobs, neighbours share one. With ``preempt=no``, an arbiter on a separate
management network lets a job communicate once the links that it crosses are free. Among waiting jobs, the one with the
longest remaining time at that moment goes first. A communicating job completes its exchange.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from testbed.core.options import Boolean, Name, option
from testbed.replay.bands import MOST
from testbed.schedulers.flow import Demand, Rule, ScheduleError, Sharing

KNOWS, CENTRAL = "run times of jobs; priority queues in switches", True


@dataclass(frozen=True)
class Options:
    over: str = option("reno", "congestion control; default reno", Name())
    preempt: bool = option(
        True, "preemption by the job with the longest remaining time: yes (default) or no", Boolean()
    )


def share(jobs: Sequence[Demand], links: Mapping[str, float], options: Options) -> Sharing:
    """A band for each job, for all of its bytes: the longer it still runs, the higher; or its links for itself, in turns."""
    remaining_s = []
    for number, job in enumerate(jobs):
        if job.iteration_s is None or not job.iterations:
            raise ScheduleError(
                f"LRETF must know how long each job runs, but job {number} is a real program or has no iteration count. Record it (`mltcp record`)."
            )
        remaining_s.append(job.iterations * job.iteration_s)
    if not options.preempt:
        if hashed := [number for number, job in enumerate(jobs) if job.phases is None]:
            raise ScheduleError(
                f"with preempt=no a job reserves its links, but a hash selects the links of job {hashed[0]}. Leave out preempt=no."
            )
        return Sharing(
            tuple(Rule(options.over, exclusive=tuple(sorted(job.phases or ()))) for job in jobs),
            {"remaining_s": remaining_s},
        )
    order = sorted(range(len(jobs)), key=lambda number: (remaining_s[number], -number))
    ranks = {number: place * min(MOST, len(jobs)) // len(jobs) for place, number in enumerate(order)}
    return Sharing(
        tuple(Rule(options.over, bands=(job.counted,) * ranks[number]) for number, job in enumerate(jobs)),
        {"remaining_s": remaining_s, "ranks": [ranks[number] for number in range(len(jobs))]},
    )

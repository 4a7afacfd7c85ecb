"""Static unfairness: every job has a constant weight, whatever it has sent already.

S. Rajasekaran, M. Ghobadi, G. Kumar, A. Akella. Congestion Control in Machine Learning Clusters. HotNets
2022, DOI 10.1145/3563766.3564115: for jobs that fit together, unfairness lets all of them end sooner.

Simplified: the paper makes DCQCN unfair by different timers per job (recalled, not confirmed); here the weight is MLTCP's F
held constant (slope 0) in the same kernel code, in force from the first byte. With F constant a flow's share is
between √F (independent losses) and F (losses that hit everybody) of the others': 2/0.5 stands for 2:1 to 4:1.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from flow_schedulers import Decision, Job, Option, Schedule, number


def _weights(text: str) -> tuple[float, ...]:
    return tuple(map(number(0.01, 16), text.split("/")))


OPTIONS: dict[str, Option] = {
    "over": (str, "the congestion control that is made unfair, one that MLTCP exists for; reno"),
    "weights": (_weights, "F of each job, in turn; 2/0.5"),
}


def schedule(
    jobs: Sequence[Job], links: Mapping[str, float], *, over: str = "reno", weights: tuple[float, ...] = (2.0, 0.5)
) -> Schedule:
    """MLTCP without its slope; the iteration's bytes are given, so that it has nothing to learn first."""
    ccs = []
    for turn, job in enumerate(jobs):
        cc = f"mltcp_{over}:slope=0,intercept={weights[turn % len(weights)]:g}"
        ccs.append(cc if job.iteration_s is None else f"{cc},total_bytes={job.bytes}B")
    return Schedule(
        tuple(Decision(cc) for cc in ccs), {"weights": [weights[turn % len(weights)] for turn in range(len(jobs))]}
    )

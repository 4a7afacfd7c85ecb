"""Static unfairness: every job has a constant weight, independent of the bytes it has sent.

S. Rajasekaran, M. Ghobadi, G. Kumar, A. Akella. Congestion Control in Machine Learning Clusters. HotNets
2022, DOI 10.1145/3563766.3564115: for jobs that fit together, unfairness lets all of them end sooner.

Simplified: the paper makes DCQCN unfair by different timers per job (recalled, not confirmed); here the weight is MLTCP's F
held constant (slope 0) in the same kernel code, active from the first byte. With F constant a flow's share is
between √F (independent losses) and F (losses that hit all flows) of the others': 2/0.5 stands for 2:1 to 4:1.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from testbed.core.options import Name, Number, option
from testbed.schedulers.flow import Demand, Rule, Sharing

KNOWS, CENTRAL = "the favoured job", False


def _weights(text: str) -> tuple[float, ...]:
    return tuple(map(Number(0.01, 16), text.split("/")))


@dataclass(frozen=True)
class Options:
    over: str = option("reno", "congestion control made unfair, one with an MLTCP variant; default reno", Name())
    weights: tuple[float, ...] = option((2.0, 0.5), "F per job; default 2/0.5", _weights)


def share(jobs: Sequence[Demand], links: Mapping[str, float], options: Options) -> Sharing:
    """Return MLTCP with slope 0 for each job; the iteration's bytes are given, so it has nothing to learn first."""
    weights = [options.weights[turn % len(options.weights)] for turn in range(len(jobs))]
    rules = []
    for job, weight in zip(jobs, weights, strict=True):
        cc = f"mltcp_{options.over}:slope=0,intercept={weight:g}"
        rules.append(Rule(cc if job.iteration_s is None else f"{cc},total_bytes={job.bytes}B"))
    return Sharing(tuple(rules), {"weights": weights})

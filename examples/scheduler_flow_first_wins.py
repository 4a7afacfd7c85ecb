"""A flow scheduler: the first job has a large constant weight, all others a small one.

mltcp run --system reno ./scheduler_flow_first_wins.py:weight=4 --jobs 2 --on flow
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from testbed.core.options import Number, option
from testbed.schedulers.flow import Demand, Rule, Sharing


@dataclass(frozen=True)
class Options:
    weight: float = option(2.0, "weight of the first job (default: 2)", Number(1, 16))


def share(jobs: Sequence[Demand], links: Mapping[str, float], options: Options) -> Sharing:
    weights = [options.weight] + [0.5] * (len(jobs) - 1)
    return Sharing(tuple(Rule(f"mltcp_reno:slope=0,intercept={weight:g}") for weight in weights), {"weights": weights})

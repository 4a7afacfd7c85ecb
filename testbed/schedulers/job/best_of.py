"""The best of n job orders by a plain policy: what search alone gives, at SJF-BCO's budget of evaluated schedules."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from testbed.core.options import Integer, OneOf, option
from testbed.core.placing import Assignments, Request
from testbed.models.contention import Model
from testbed.schedulers import search
from testbed.schedulers.job import Cluster, random


@dataclass(frozen=True)
class Options:
    n: int = option(15, "schedules to evaluate; default 15", Integer(1, 100_000))
    policy: str = option("tightest_fit", "placement: tightest_fit (default) or random", OneOf("tightest_fit", "random"))


def schedule(
    requests: Sequence[Request], cluster: Cluster, model: Model, options: Options, *, seed: int
) -> Assignments:
    """Return the best of one schedule for each order; the first order is the given one. Raises `RequestError`."""
    instance = search.Instance(requests, cluster, model)
    best = search.Best(instance)
    pick = search.tightest_fit if options.policy == "tightest_fit" else random.drawn(seed)
    for order in instance.orders(options.n, seed):
        best.attempt(search.Trial(instance, pick, order))
    return best.assignments()

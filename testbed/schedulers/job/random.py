"""Random: free GPUs of any server, sampled by the seed. θ = T: no search."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

import numpy as np

from testbed.core.placing import Assignments, Request
from testbed.models.cluster import Numbers
from testbed.models.contention import Model
from testbed.schedulers import search
from testbed.schedulers.job import Cluster

Options = search.Orders


def schedule(
    requests: Sequence[Request], cluster: Cluster, model: Model, options: search.Orders, *, seed: int
) -> Assignments:
    """The best over orders."""
    instance = search.Instance(requests, cluster, model)
    best = search.Best(instance)
    for order in instance.orders(options.orders, seed):
        best.attempt(search.Trial(instance, drawn(seed), order, backfill=options.backfill))
    return best.assignments()


def drawn(seed: int) -> Callable[[search.Offer], Numbers | None]:
    """Return a rule that gives each job the next candidates of the shuffled GPUs, which are shuffled again at every
    event."""
    draw = random.Random(f"place {seed}")
    shuffled: list[int] = []
    at_s = -1.0

    def pick(offer: search.Offer) -> Numbers | None:
        nonlocal shuffled, at_s
        if offer.state.now_s != at_s:
            at_s = offer.state.now_s
            shuffled = list(range(len(offer.candidates)))
            draw.shuffle(shuffled)
        order = np.array(shuffled, dtype=np.int64)
        found = order[offer.candidates[order]]
        return found[: offer.request.gpus] if len(found) >= offer.request.gpus else None

    return pick

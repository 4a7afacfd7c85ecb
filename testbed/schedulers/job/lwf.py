"""LWF-κ: least workload first, of GPUs for jobs up to κ, of servers for larger ones.

Source: Wang, Shi, Wang, Chu, arXiv 2002.10105, in the form with which SJF-BCO's companion ("Contention-Free All-Reduce
Learning Jobs Scheduling") compares. Larger jobs get all GPUs of servers, the server with the least work first.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from testbed.core.options import Boolean, Integer, option
from testbed.core.placing import Assignments, Request
from testbed.models.cluster import Numbers
from testbed.models.contention import Model
from testbed.schedulers import search
from testbed.schedulers.job import Cluster


@dataclass(frozen=True)
class Options:
    kappa: int = option(1, "most GPUs of a small job; default 1", Integer(0, 100_000))
    orders: int = option(1, search.ORDERS_MEANING, Integer(1, 100_000))
    backfill: bool = option(False, search.BACKFILL_MEANING, Boolean())


def schedule(
    requests: Sequence[Request], cluster: Cluster, model: Model, options: Options, *, seed: int
) -> Assignments:
    """The best over orders; without a limit on a GPU's work."""
    instance = search.Instance(requests, cluster, model)
    orders = instance.orders(options.orders, seed)

    def pick(offer: search.Offer) -> Numbers | None:
        return search.least_loaded(offer) if offer.request.gpus <= options.kappa else by_server(offer)

    return search.search(instance, [pick], orders, backfill=options.backfill)


def by_server(offer: search.Offer) -> Numbers | None:
    """Candidates of one server after the other, the server with the least work a GPU first."""
    servers, wanted = offer.state.servers, offer.request.gpus
    found = np.flatnonzero(offer.candidates)
    work = np.bincount(servers.of, weights=offer.load_s, minlength=len(servers.sizes)) / servers.sizes
    order = np.lexsort((found, servers.of[found], work[servers.of[found]]))
    return found[order[:wanted]] if len(found) >= wanted else None

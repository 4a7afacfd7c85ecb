"""Reservation: a job that spans servers starts only if no other job uses their uplinks, so that jobs never contend.

A simplification of GADGET (Yu et al., INFOCOM 2022), which reserves bandwidth for each job, varies the number of workers and
preempts. Here rings keep their size, and the complete uplink is reserved.
"""

from __future__ import annotations

from collections.abc import Sequence

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
    return search.search(instance, [uncontended], instance.orders(options.orders, seed), backfill=options.backfill)


def uncontended(offer: search.Offer) -> Numbers | None:
    """Tightest fit, if no job uses the uplinks."""
    gpus = search.tightest_fit(offer)
    if gpus is None:
        return None
    servers = {int(server) for server in offer.state.servers.of[gpus]}
    return gpus if len(servers) == 1 or offer.law.crowd(servers) == 1 else None

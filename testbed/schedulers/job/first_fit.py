"""First fit: the first free GPUs, server by server, within its own limit θ on the accumulated work of a GPU."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from testbed.core.options import Integer, option
from testbed.core.placing import Assignments, Request
from testbed.models.contention import Model
from testbed.schedulers import search
from testbed.schedulers.job import Cluster


@dataclass(frozen=True)
class Options(search.Limits):
    orders: int = option(1, search.ORDERS_MEANING, Integer(1, 100_000))


def schedule(
    requests: Sequence[Request], cluster: Cluster, model: Model, options: Options, *, seed: int
) -> Assignments:
    """The best over θ and orders."""
    instance = search.Instance(requests, cluster, model, options.rho)
    orders = instance.orders(options.orders, seed)
    return search.search(
        instance, [search.first_fit], orders, instance.thetas(options), backfill=options.backfill, before=1
    )


def schedule_as_they_arrive(
    requests: Sequence[Request], cluster: Cluster, model: Model, options: Options
) -> Assignments | None:
    """One pass over jobs that arrive, see `search.as_they_arrive`; None for several orders, which have to be compared."""
    if options.orders > 1:
        return None
    return search.as_they_arrive(
        search.Instance(requests, cluster, model, options.rho), search.first_fit, backfill=options.backfill
    )

"""Tightest fit: the fullest server that still holds the whole job; where none does, the fewest servers.

Not in SJF-BCO's report, and needed beside it: it keeps jobs inside servers without any search.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from testbed.core.options import Boolean, Integer, option
from testbed.core.placing import Assignments, Request
from testbed.models.contention import Model
from testbed.schedulers import search
from testbed.schedulers.job import Cluster


@dataclass(frozen=True)
class Options:
    orders: int = option(1, search.ORDERS_MEANING, Integer(1, 100_000))
    backfill: bool = option(False, search.BACKFILL_MEANING, Boolean())


def schedule(
    requests: Sequence[Request], cluster: Cluster, model: Model, options: Options, *, seed: int
) -> Assignments:
    """The best over orders; without a limit on a GPU's work."""
    instance = search.Instance(requests, cluster, model)
    orders = instance.orders(options.orders, seed)
    return search.search(instance, [search.tightest_fit], orders, backfill=options.backfill)

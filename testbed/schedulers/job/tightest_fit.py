"""Tightest fit: the fullest server that still holds the complete job; otherwise the fewest servers.

A reference that is not in SJF-BCO's report: it keeps jobs inside servers without any search.
"""

from __future__ import annotations

from collections.abc import Sequence

from testbed.core.placing import Assignments, Request
from testbed.models.contention import Model
from testbed.schedulers import search
from testbed.schedulers.job import Cluster

Options = search.Orders


def schedule(
    requests: Sequence[Request], cluster: Cluster, model: Model, options: search.Orders, *, seed: int
) -> Assignments:
    """The best over orders; without a limit on a GPU's work."""
    instance = search.Instance(requests, cluster, model)
    orders = instance.orders(options.orders, seed)
    return search.search(instance, [search.tightest_fit], orders, backfill=options.backfill)

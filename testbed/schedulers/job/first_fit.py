"""First fit: the first free GPUs, server by server, within its own limit θ on the accumulated work of a GPU."""

from __future__ import annotations

from functools import partial

from testbed.schedulers import search

Options = search.LimitsAndOrders
schedule = partial(search.best_within_limits, search.first_fit)
schedule_as_they_arrive = partial(search.as_they_arrive, search.first_fit)

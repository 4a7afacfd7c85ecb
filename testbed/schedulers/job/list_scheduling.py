"""List scheduling: the free GPUs with the least accumulated work, within its own limit θ on it."""

from __future__ import annotations

from functools import partial

from testbed.schedulers import search

Options = search.LimitsAndOrders
schedule = partial(search.best_within_limits, search.least_loaded)
schedule_as_they_arrive = partial(search.as_they_arrive, search.least_loaded)

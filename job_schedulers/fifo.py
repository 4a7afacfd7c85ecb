"""FIFO with EASY backfill: jobs in their order; others may pass the first in line if they do not delay its start.

Its start is foreseen from the ends that are due as things stand. GPUs by first fit.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from core.options import option, yes
from core.placing import Assignments, Request
from job_schedulers import Cluster, search
from theory.cluster import Start, State, assignments
from theory.contention import Model


@dataclass(frozen=True)
class Options:
    backfill: bool = option(True, "whether others may pass: yes, the default, or no", yes)


def schedule(
    requests: Sequence[Request], cluster: Cluster, model: Model, options: Options, *, seed: int
) -> Assignments:
    """One schedule."""
    instance = search.Instance(requests, cluster, model)

    def policy(state: State) -> Iterator[Start]:
        for number in list(state.waiting):
            if requests[number].gpus > state.idle.sum():
                break
            yield number, np.flatnonzero(state.free)[: requests[number].gpus]
        if not options.backfill or not state.waiting:
            return
        first, *others = list(state.waiting)
        due_s, spare = _foreseen(state, requests[first].gpus)
        for number in others:
            wanted, idle = requests[number].gpus, int(state.idle.sum())
            ends_in_time = state.now_s + instance.estimates_s[number] <= due_s
            if wanted <= idle and (ends_in_time or wanted <= spare):
                spare -= 0 if ends_in_time else wanted
                yield number, np.flatnonzero(state.free)[:wanted]

    ran = instance.run(policy)
    assert ran is not None  # it takes any free GPUs
    return assignments(ran)


def _foreseen(state: State, wanted: int) -> tuple[float, int]:
    """When so many GPUs will be free, and how many more then."""
    free = int(state.idle.sum())
    for end_s, number in sorted((end, number) for number, end in state.ends_s.items()):
        free += state.requests[number].gpus
        if free >= wanted:
            return end_s, free - wanted
    raise AssertionError("a job is larger than the cluster")

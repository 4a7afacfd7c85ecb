"""SRSF: smallest remaining service (GPUs × time) first; as many as ``share`` jobs may contend on an uplink.

Source: Wang, Shi, Wang, Chu, arXiv 2002.10105: SRSF(1) avoids all contention, SRSF(2) admits two jobs, Ada-SRSF decides by the
model whether contending now beats waiting. There the decision is taken for every message; here once, when a job starts, which
is what a schedule of jobs can hold. GPUs by tightest fit (ours: theirs are given by LWF-κ).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from core.options import option
from core.placing import Assignments, Request
from job_schedulers import Cluster, search
from theory.cluster import Numbers
from theory.contention import Model


@dataclass(frozen=True)
class Options:
    share: str = option(
        "ada", "1, 2 or ada, the default: decided by the model, two at the most", search.one_of("1", "2", "ada")
    )


def schedule(
    requests: Sequence[Request], cluster: Cluster, model: Model, options: Options, *, seed: int
) -> Assignments:
    """One schedule."""
    instance = search.Instance(requests, cluster, model)
    service = [took * one.gpus for took, one in zip(instance.estimates_s, requests, strict=True)]
    order = sorted(range(len(requests)), key=service.__getitem__)

    def pick(offer: search.Offer) -> Numbers | None:
        gpus = search.tightest_fit(offer)
        if gpus is None:
            return None
        servers = {int(server) for server in offer.state.servers.of[gpus]}
        if len(servers) == 1 or (crowd := offer.law.crowd(servers)) == 1:
            return gpus
        if options.share != "ada":
            return gpus if crowd <= int(options.share) else None
        others = {number for server in servers for number in offer.law.spanning[server]}
        return gpus if crowd == 2 and all(_better(instance, offer, other, len(servers)) for other in others) else None

    best = search.Best(instance)
    best.attempt(search.Trial(instance, pick, order, backfill=True))
    return best.assignments()


def _better(instance: search.Instance, offer: search.Offer, other: int, spans: int) -> bool:
    """Whether the two end sooner, in the sum, if this one starts beside the ``other`` than if it waits for it."""
    new, old, model = offer.request, instance.requests[other], instance.model
    new_s, old_s = new.iterations * model.iteration_s(new, spans), offer.state.ends_s[other] - offer.state.now_s
    slower_new = model.iteration_s(new, spans, 2) / model.iteration_s(new, spans) if new_s else 1.0
    over = max(2, instance.servers.fewest(old.gpus))
    slower_old = model.iteration_s(old, over, 2) / model.iteration_s(old, over) if old_s else 1.0
    if new_s * slower_new <= old_s * slower_old:
        ends = new_s * slower_new, old_s + new_s * slower_new * (1 - 1 / slower_old)
    else:
        ends = old_s * slower_old, new_s + old_s * slower_old * (1 - 1 / slower_new)
    return sum(ends) < old_s + (old_s + new_s)

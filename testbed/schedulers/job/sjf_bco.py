"""SJF-BCO: smallest job first with balanced contention and overhead.

Source: Yu, Ji, Rajan, Liu, MobiHoc 2022 (technical report, arXiv 2207.07817), Algorithms 1–3. Jobs up to κ GPUs fill
servers in use (FA-FFP). Larger ones wait for few servers with little work (LBSGF). The schedule is the best over κ and
over the limit θ on the work of a GPU. Choices where the paper contradicts itself: only complete schedules compete.
FA-FFP follows its text (``pack``: servers in use first) or its pseudo-code (``leastload``: list scheduling). θ is
bisected as published or, because the makespan is not monotone in θ, taken from a grid. Only the sizes of jobs matter as
values of κ.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from testbed.core.options import Integer, Number, OneOf, option
from testbed.core.placing import Assignments, Request
from testbed.models.cluster import Numbers
from testbed.models.contention import Model
from testbed.schedulers import search
from testbed.schedulers.job import Cluster

BISECTIONS = 11  # number of bisections of a horizon of about 1200 slots, as published: down to one slot


@dataclass(frozen=True)
class Options(search.Limits):
    faffp: str = option("pack", "FA-FFP variant: pack (default) or leastload", OneOf("pack", "leastload"))
    lam: float = option(1.0, "λ of LBSGF: GPUs of opened servers ÷ GPUs of the job; default 1", Number(1, 10**6))
    kappa: int = option(0, "κ; 0 (default): try all values", Integer(0, 100_000))
    theta: str = option("grid", "search for θ: grid (default) or bisect", OneOf("grid", "bisect"))


def schedule(
    requests: Sequence[Request], cluster: Cluster, model: Model, options: Options, *, seed: int
) -> Assignments:
    """The best over κ and θ."""
    instance = search.Instance(requests, cluster, model, options.rho)
    small = faffp_pack if options.faffp == "pack" else search.least_loaded
    kappas = [options.kappa] if options.kappa else sorted({1, *(request.gpus for request in requests)})
    picks = [_rule(small, kappa, options.lam) for kappa in kappas]
    order = instance.smallest_first()
    if options.theta == "grid":
        thetas = instance.thetas(options)
        return search.search(instance, picks, [order], thetas, backfill=options.backfill, before=1)
    left, right = instance.lowest_s(), instance.horizon_s(options)
    best = search.Best(instance, 1)
    for _ in range(BISECTIONS):
        theta, before = (left + right) / 2, best.makespan_s
        for pick in picks:
            best.attempt(search.Trial(instance, pick, order, theta, backfill=options.backfill))
        left, right = (left, theta) if best.makespan_s < before else (theta, right)
    return best.assignments()


def _rule(small: search.Pick, kappa: int, lam: float) -> search.Pick:
    return lambda offer: small(offer) if offer.request.gpus <= kappa else lbsgf(offer, lam)


def faffp_pack(offer: search.Offer) -> Numbers | None:
    """FA-FFP by its text: candidates in servers in use, the fullest first, then in idle ones."""
    state, wanted = offer.state, offer.request.gpus
    found = np.flatnonzero(offer.candidates)
    if len(found) < wanted:
        return None
    of = state.servers.of[found]
    idle_server = state.idle == state.servers.sizes
    return found[np.lexsort((found, of, state.idle[of], idle_server[of]))[:wanted]]


def lbsgf(offer: search.Offer, lam: float) -> Numbers | None:
    """The least busy servers that have λ G GPUs in all, free or not; of these the candidates with the least work."""
    servers, wanted = offer.state.servers, offer.request.gpus
    work = np.bincount(servers.of, weights=offer.load_s, minlength=len(servers.sizes)) / servers.sizes
    order = np.argsort(work, kind="stable")
    opened = order[: np.searchsorted(np.cumsum(servers.sizes[order]), lam * wanted) + 1]
    rank = np.full(len(servers.sizes), len(servers.sizes))
    rank[opened] = np.arange(len(opened))
    found = np.flatnonzero(offer.candidates & (rank < len(servers.sizes))[servers.of])
    if len(found) < wanted:
        return None
    return found[np.lexsort((found, rank[servers.of[found]], offer.load_s[found]))[:wanted]]

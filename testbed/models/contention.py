"""The length of an iteration under contention: equations 6 to 8 of SJF-BCO.

Source: Yu, Ji, Rajan, Liu, "On Scheduling Ring-All-Reduce Learning Jobs in Multi-Tenant GPU Clusters with Communication
Contention", MobiHoc 2022 (technical report, arXiv 2207.07817). A job whose ring crosses servers shares the uplink of each of
its servers; p counts such jobs on the fullest of them, including itself. Where the paper gives no rule, this is ours: k is
at least 1 (with ξ1 < 1 a job alone would be faster than its link), the overhead ξ2 is in seconds a server (the paper gives it
ξ1's value, though one is a share and the other a time).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Hashable, Iterable, Sequence
from dataclasses import dataclass

from testbed.core.errors import RequestError
from testbed.core.placing import Request, Stint

Degradation = Callable[[float, float], float]


def linear(alpha: float, k: float) -> float:
    """f(α, k) = k + α (k − 1): by how much less than an uplink each of k jobs gets; the paper's example."""
    return k + alpha * (k - 1)


@dataclass(frozen=True)
class Model:
    """The constants of equation 8. Rates in bit/s, times in seconds.

    With the defaults for rates, an iteration takes its computing time on any servers.
    """

    rate_bps: float = math.inf  # b_e: of each server's uplink
    intra_bps: float = math.inf  # b_i: inside a server
    reduce_bps: float = math.inf  # C: how fast a GPU adds up
    alpha: float = 0.3
    xi1: float = 1.0
    xi2_s: float = 0.0  # γ = ξ2 · servers
    degradation: Degradation = linear
    slot_s: float = 0.0  # the paper's slots; 0: continuous time

    def tau_s(self, request: Request, servers: int, p: int = 1) -> float:
        """An iteration over so many servers at contention ``p`` (eq. 8)."""
        bits = 8 * request.gradient_bytes * (request.gpus - 1) / request.gpus
        bandwidth = self.intra_bps
        if servers > 1:
            bandwidth = self.rate_bps / self.degradation(self.alpha, max(1.0, self.xi1 * p))
        return 2 * bits / bandwidth + bits / self.reduce_bps + self.xi2_s * servers + request.compute_s

    def iteration_s(self, request: Request, servers: int, p: int = 1) -> float:
        """The same, or its value where a slot holds complete iterations only (φ = ⌊1/τ⌋).

        Raises `RequestError` if a slot is too short for one.
        """
        tau = self.tau_s(request, servers, p)
        if not self.slot_s:
            return tau
        whole = math.floor(self.slot_s / tau * (1 + 1e-12)) if tau else 0
        if tau and not whole:
            raise RequestError(
                f"slot: an iteration of job {request.job} takes {tau:.3g} s on {servers} servers at contention {p}, but a "
                f"slot has only {self.slot_s:g} s. Give longer slots, or leave --slot out (continuous time)."
            )
        return self.slot_s / whole if tau else 0.0


class Contended:
    """Equation 8 as a rate law of `testbed.models.cluster`: which jobs are active where, and how fast that lets each be."""

    def __init__(self, model: Model, servers: int) -> None:
        self.model = model
        self.spanning: list[dict[int, None]] = [{} for _ in range(servers)]  # jobs on each uplink
        self._where: dict[int, tuple[Request, Sequence[int]]] = {}
        self._p: dict[int, int] = {}

    def starts(self, number: int, request: Request, servers: Sequence[int]) -> list[int]:
        """Job ``number`` is on these servers from now on; returns the jobs whose speed changes, including this one."""
        self._where[number] = request, servers
        self._p[number] = 0
        changed = {number}
        for server in servers if len(servers) > 1 else ():
            there = self.spanning[server]
            there[number] = None
            for other in there:
                if len(there) > self._p[other]:
                    self._p[other] = len(there)
                    changed.add(other)
        return sorted(changed)

    def ends(self, number: int) -> list[int]:
        """The job has left; returns the jobs whose speed changes."""
        _, servers = self._where.pop(number)
        del self._p[number]
        concerned = set()
        for server in servers if len(servers) > 1 else ():
            there = self.spanning[server]
            concerned |= {other for other in there if self._p.get(other) == len(there)}
            del there[number]
        changed = []
        for other in sorted(concerned - {number}):
            p = max([len(self.spanning[server]) for server in self._where[other][1]])
            if p != self._p[other]:
                self._p[other] = p
                changed.append(other)
        return changed

    def contention(self, number: int) -> int:
        """p of an active job (eq. 6): 0 inside one server, 1 for a job that has its uplinks to itself."""
        return self._p[number]

    def iteration_s(self, number: int) -> float:
        """The iteration time of an active job under the present contention, in s."""
        request, servers = self._where[number]
        return self.model.iteration_s(request, len(servers), self._p[number])

    def crowd(self, servers: Iterable[int]) -> int:
        """The p that one more job over these servers would have."""
        return 1 + max(len(self.spanning[server]) for server in servers)


@dataclass(frozen=True)
class Met:
    """The contention of a job while it held GPUs."""

    most: int
    mean: float  # over that time; 0 if it held none


def met(held: Sequence[Sequence[Stint]], crosses: Sequence[Collection[Hashable]] = ()) -> list[Met]:
    """Return p of every job, from the times at which jobs held GPUs: all times of each job, except those of zero length.

    Jobs that span servers are counted on the fullest link of each one's ring: on the uplinks of its servers (eq. 6),
    and on the links in ``crosses`` in addition.
    """
    beyond = crosses or [()] * len(held)
    numbers: dict[Hashable, int] = {}

    def links(job: int, stint: Stint) -> list[int]:
        hosts = {gpu.host for gpu in stint.gpus}
        used = [*hosts, *(("link", link) for link in beyond[job])] if len(hosts) > 1 else hosts
        return [numbers.setdefault(link, len(numbers)) for link in used]

    on = [[links(job, stint) for stint in stints] for job, stints in enumerate(held)]
    law = Contended(Model(), len(numbers))
    events = sorted(
        (at, begins, job, number)
        for job, stints in enumerate(held)
        for number, stint in enumerate(stints)
        if stint.end_s > stint.start_s
        for at, begins in ((stint.start_s, True), (stint.end_s, False))  # at the same time ends go first
    )
    now, since = dict[int, int](), dict[int, float]()  # p of those that hold GPUs, and the time of the last update
    most, sums = [0] * len(held), [0.0] * len(held)
    for at, begins, job, number in events:
        if begins:
            now[job], since[job] = 0, at
            changed = law.starts(job, Request(job, len(held[job][number].gpus)), on[job][number])
        else:
            sums[job] += now.pop(job) * (at - since.pop(job))
            changed = law.ends(job)
        for other in changed:
            sums[other] += now[other] * (at - since[other])
            now[other], since[other] = law.contention(other), at
            most[other] = max(most[other], now[other])
    spent = [sum(stint.end_s - stint.start_s for stint in stints) for stints in held]
    return [Met(high, total / lasts if lasts else 0.0) for high, total, lasts in zip(most, sums, spent, strict=True)]

"""How long an iteration takes beside others: equations 6 to 8 of SJF-BCO.

Source: Yu, Ji, Rajan, Liu, "On Scheduling Ring-All-Reduce Learning Jobs in Multi-Tenant GPU Clusters with Communication
Contention", MobiHoc 2022 (technical report, arXiv 2207.07817). A job whose ring crosses servers shares the uplink of each of
its servers; p counts such jobs on the fullest of them, itself among them. Where the report says nothing, this is ours: k is
at least 1 (with ξ1 < 1 a job alone would be faster than its link), the overhead ξ2 is in seconds a server (the report gives it
ξ1's value, though one is a share and the other a time).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from core.errors import RequestError
from core.placing import Request

Degradation = Callable[[float, float], float]


def linear(alpha: float, k: float) -> float:
    """f(α, k) = k + α (k − 1): by how much less than an uplink each of k jobs gets; the report's example."""
    return k + alpha * (k - 1)


@dataclass(frozen=True)
class Model:
    """The constants of equation 8. Rates in bit/s, times in seconds.

    Without any it is the simplest model: an iteration takes what it computes, wherever.
    """

    rate_bps: float = math.inf  # b_e: of each server's uplink
    intra_bps: float = math.inf  # b_i: inside a server
    reduce_bps: float = math.inf  # C: how fast a GPU adds up
    alpha: float = 0.3
    xi1: float = 1.0
    xi2_s: float = 0.0  # γ = ξ2 · servers
    degradation: Degradation = linear
    slot_s: float = 0.0  # the report's slots; 0: continuous time

    def tau_s(self, request: Request, servers: int, p: int = 1) -> float:
        """An iteration over so many servers at contention ``p`` (eq. 8)."""
        bits = 8 * request.gradient_bytes * (request.gpus - 1) / request.gpus
        bandwidth = self.intra_bps
        if servers > 1:
            bandwidth = self.rate_bps / self.degradation(self.alpha, max(1.0, self.xi1 * p))
        return 2 * bits / bandwidth + bits / self.reduce_bps + self.xi2_s * servers + request.compute_s

    def iteration_s(self, request: Request, servers: int, p: int = 1) -> float:
        """The same, or what it comes to where a slot holds whole iterations only (φ = ⌊1/τ⌋).

        Raises `RequestError` if a slot is too short for one.
        """
        tau = self.tau_s(request, servers, p)
        if not self.slot_s:
            return tau
        whole = math.floor(self.slot_s / tau * (1 + 1e-12)) if tau else 0
        if tau and not whole:
            raise RequestError(
                f"slot: an iteration of job {request.job} takes {tau:.3g} s on {servers} servers at contention {p}, and a "
                f"slot of {self.slot_s:g} s has room for none; give longer slots, or none (continuous time)"
            )
        return self.slot_s / whole if tau else 0.0


class Contended:
    """Equation 8 as a rate law of `theory.cluster`: which jobs are active where, and how fast that lets each be."""

    def __init__(self, model: Model, servers: int) -> None:
        self.model = model
        self.spanning: list[dict[int, None]] = [{} for _ in range(servers)]  # jobs on each uplink
        self._where: dict[int, tuple[Request, Sequence[int]]] = {}
        self._p: dict[int, int] = {}

    def starts(self, number: int, request: Request, servers: Sequence[int]) -> list[int]:
        """Job ``number`` is on these servers from now on; whose speed changes by it, its own too."""
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
        """It is gone; whose speed changes by it."""
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
        """Of an active job, as things stand."""
        request, servers = self._where[number]
        return self.model.iteration_s(request, len(servers), self._p[number])

    def crowd(self, servers: Iterable[int]) -> int:
        """The p that one more job over these servers would have."""
        return 1 + max(len(self.spanning[server]) for server in servers)

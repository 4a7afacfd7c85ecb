"""SRSF: smallest remaining service (GPUs × time) first; at most ``share`` jobs may contend on an uplink.

Source: Wang, Shi, Wang, Chu, arXiv 2002.10105: SRSF(1) avoids all contention, SRSF(2) admits two jobs, Ada-SRSF decides
by the model whether contention is better than waiting. The paper decides for every message; here the decision is made
once, when a job starts, because a schedule of jobs has no messages. GPUs by tightest fit, while the paper uses LWF-κ.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from testbed.core.options import OneOf, option
from testbed.core.placing import Assignments, Request
from testbed.models.cluster import Numbers, Start, State, assignments
from testbed.models.contention import Contended, Model
from testbed.schedulers import search
from testbed.schedulers.job import Cluster
from testbed.schedulers.line import CHUNK, Floats, Group, Line

NO_LOAD: Floats = np.zeros(0)  # tightest fit does not use it
ROUNDING = 1e-9


@dataclass(frozen=True)
class Options:
    share: str = option(
        "ada",
        "jobs that may share a link: 1, 2, or ada (default: the model decides, at most 2)",
        OneOf("1", "2", "ada"),
    )


def schedule(
    requests: Sequence[Request], cluster: Cluster, model: Model, options: Options, *, seed: int
) -> Assignments:
    """Return the schedule. Raises `RequestError` if a job does not fit on the cluster."""
    instance = search.Instance(requests, cluster, model)
    law = instance.law()
    ran = instance.run(_Policy(instance, law, options.share), law)
    assert ran is not None  # a job that is alone contends with none
    return assignments(ran)


class _Policy:
    """Jobs in the order of their service; one that may not start yet is passed."""

    def __init__(self, instance: search.Instance, law: Contended, share: str) -> None:
        self._instance, self._law, self._share = instance, law, share
        service = [took * request.gpus for took, request in zip(instance.estimates_s, instance.requests, strict=True)]
        order = sorted(range(len(instance.requests)), key=service.__getitem__)
        self._line = Line(order, instance.requests)
        self._paces: dict[tuple[int, int], _Paces] = {}

    def __call__(self, state: State) -> Iterator[Start]:
        for number in state.arrived:
            self._line.add(number)
        after = -1
        while (found := self._next(after, state)) is not None:
            after, gpus = found
            number = self._line.order[after]
            self._line.remove(number)
            yield number, gpus

    def _next(self, after: int, state: State) -> tuple[int, Numbers] | None:
        """The first one after this rank that may start, and its GPUs."""
        best: tuple[int, Numbers] | None = None
        for size, group in self._line.fitting(state.room):
            rank = group.following(after)
            if rank is None or (best is not None and rank > best[0]):
                continue
            number = self._line.order[rank]
            request = self._instance.requests[number]
            gpus = search.tightest_fit(search.Offer(number, request, state, NO_LOAD, state.free, self._law))
            assert gpus is not None  # enough GPUs are free
            rank = self._admitted(size, group, rank, gpus, state)
            if rank is not None and (best is None or rank < best[0]):
                best = rank, gpus
        return best

    def _admitted(self, size: int, group: Group, rank: int, gpus: Numbers, state: State) -> int | None:
        """The first job of a group, from this rank on, that may start on these GPUs."""
        servers = set(state.servers.of[gpus].tolist())
        if len(servers) == 1 or (crowd := self._law.crowd(servers)) == 1:
            return rank
        if self._share != "ada":
            return rank if crowd <= int(self._share) else None
        if crowd > 2:
            return None
        others = {number for server in servers for number in self._law.spanning[server]}
        return self._better(size, group, rank, len(servers), others, state)

    def _better(self, size: int, group: Group, rank: int, spans: int, others: set[int], state: State) -> int | None:
        """The first job that, running with each of the ``others``, gives a smaller sum of end times than if it waits for it."""
        if (size, spans) not in self._paces:
            self._paces[size, spans] = _Paces(self._instance, group, spans)
        paces, model = self._paces[size, spans], self._instance.model
        old = []
        for other in others:
            request, left_s = self._instance.requests[other], state.ends_s[other] - state.now_s
            over = max(2, self._instance.servers.fewest(request.gpus))
            slower = model.iteration_s(request, over, 2) / model.iteration_s(request, over) if left_s else 1.0
            old.append((left_s, slower))
        position = paces.first(group.position(rank), group.waits, old)
        return None if position is None else group.all_ranks[position]


class _Paces:
    """How long each job of a group runs over so many servers, and by how much longer when it shares them with another."""

    def __init__(self, instance: search.Instance, group: Group, spans: int) -> None:
        model, requests = instance.model, [instance.requests[number] for number in group.numbers]
        alone = [model.iteration_s(request, spans) for request in requests]
        self.new_s = np.array([request.iterations * own for request, own in zip(requests, alone, strict=True)])
        self.slower = np.array(
            [
                model.iteration_s(request, spans, 2) / own if took else 1.0
                for request, own, took in zip(requests, alone, self.new_s, strict=True)
            ]
        )
        starts = range(0, len(requests), CHUNK)
        self._least_s = np.minimum.reduceat(self.new_s, starts)
        self._least_slower = np.minimum.reduceat(self.slower, starts)

    def first(self, begin: int, waits: npt.NDArray[np.bool_], old: Sequence[tuple[float, float]]) -> int | None:
        """The first waiting position from ``begin`` on that is better off together with all of the ``old``."""
        chunk = begin // CHUNK
        possible = np.ones(len(self._least_s) - chunk, dtype=bool)
        for left_s, slower_old in old:
            possible &= _may_be_better(self._least_s[chunk:], self._least_slower[chunk:], left_s, slower_old)
        for number in (chunk + np.flatnonzero(possible)).tolist():
            start = max(begin, number * CHUNK)
            some = slice(start, (number + 1) * CHUNK)
            found = waits[some].copy()
            for left_s, slower_old in old:
                if found.any():
                    found &= better(self.new_s[some], self.slower[some], left_s, slower_old)
            if found.any():
                return start + int(found.argmax())
        return None


def better(new_s: Floats, slower_new: Floats, old_s: float, slower_old: float) -> npt.NDArray[np.bool_]:
    """Return where a new and an old job have a smaller sum of end times together than one after the other."""
    first = new_s * slower_new <= old_s * slower_old
    ends = np.where(
        first,
        new_s * slower_new + (old_s + new_s * slower_new * (1 - 1 / slower_old)),
        old_s * slower_old + (new_s + old_s * slower_old * (1 - 1 / slower_new)),
    )
    found: npt.NDArray[np.bool_] = ends < old_s + (old_s + new_s)
    return found


def _may_be_better(new_s: Floats, slower_new: Floats, old_s: float, slower_old: float) -> npt.NDArray[np.bool_]:
    """Return where `better` can hold for a job that is no shorter and slows down no less, with tolerance for rounding."""
    if_new_first = new_s * (slower_new * (2 - 1 / slower_old) - 1) <= old_s * (1 + ROUNDING) + ROUNDING * new_s
    if_old_first = slower_old * (2 - 1 / slower_new) <= 2 + ROUNDING
    found: npt.NDArray[np.bool_] = if_new_first | if_old_first
    return found

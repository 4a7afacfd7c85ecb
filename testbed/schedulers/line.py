"""Waiting jobs, in a fixed order and by requested GPUs: the next one that may start is found without a scan of all."""

from __future__ import annotations

import bisect
import heapq
import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from testbed.core.placing import Request

CHUNK = 128
Floats = npt.NDArray[np.float64]


class Group:
    """The jobs with the same number of GPUs; `ranks` are those that wait."""

    def __init__(self, numbers: list[int], ranks: list[int]) -> None:
        self.numbers, self.all_ranks = numbers, ranks
        self.ranks: list[int] = []  # ascending
        self.waits = np.zeros(len(ranks), dtype=bool)  # by position

    def position(self, rank: int) -> int:
        """Return the position of the job with ``rank`` in this group."""
        return bisect.bisect_left(self.all_ranks, rank)

    def following(self, after: int) -> int | None:
        """The first rank after this one."""
        place = bisect.bisect_right(self.ranks, after)
        return self.ranks[place] if place < len(self.ranks) else None


class Line:
    """Jobs in the order of ``order``, of which some wait."""

    def __init__(self, order: Sequence[int], requests: Sequence[Request]) -> None:
        self.order = list(order)
        self._rank = {number: rank for rank, number in enumerate(self.order)}
        by_size: dict[int, tuple[list[int], list[int]]] = {}
        for rank, number in enumerate(self.order):
            numbers, ranks = by_size.setdefault(requests[number].gpus, ([], []))
            numbers.append(number)
            ranks.append(rank)
        self._requests = requests
        self.groups = {size: Group(*by_size[size]) for size in sorted(by_size)}
        self._first: list[int] = []  # ranks that wait, and some that no longer do
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def add(self, number: int) -> int:
        """A job waits from now on; its position in its group."""
        rank, group = self._rank[number], self.groups[self._requests[number].gpus]
        position = group.position(rank)
        group.waits[position] = True
        bisect.insort(group.ranks, rank)
        heapq.heappush(self._first, rank)
        self._count += 1
        return position

    def remove(self, number: int) -> int:
        """Remove it from the line; returns its position in its group."""
        rank, group = self._rank[number], self.groups[self._requests[number].gpus]
        position = group.position(rank)
        group.waits[position] = False
        del group.ranks[bisect.bisect_left(group.ranks, rank)]
        self._count -= 1
        return position

    def first(self) -> int:
        """The job at the head; there has to be one."""
        while not self._waits(self._first[0]):
            heapq.heappop(self._first)
        return self.order[self._first[0]]

    def rank(self, number: int) -> int:
        """Return the rank of job ``number`` in the order."""
        return self._rank[number]

    def _waits(self, rank: int) -> bool:
        group = self.groups[self._requests[self.order[rank]].gpus]
        return bool(group.waits[group.position(rank)])

    def fitting(self, room: int) -> list[tuple[int, Group]]:
        """Return the groups with waiting jobs of at most ``room`` GPUs each, the smallest first."""
        found = []
        for size, group in self.groups.items():
            if size > room:
                break
            if group.ranks:
                found.append((size, group))
        return found


class Least:
    """Values of the jobs of a group that wait, with the least one of every `CHUNK` positions."""

    def __init__(self, count: int) -> None:
        self._values = np.full(count, math.inf)
        self._least = np.full(-(-count // CHUNK), math.inf)

    def set(self, position: int, value: float) -> None:
        """A value; infinity: none."""
        self._values[position] = value
        chunk = position // CHUNK
        self._least[chunk] = self._values[chunk * CHUNK : (chunk + 1) * CHUNK].min()

    def first(self, begin: int, most: float) -> int | None:
        """The first position from ``begin`` on whose value is no larger than ``most``."""
        chunk = begin // CHUNK
        for other in (chunk, *(chunk + 1 + np.flatnonzero(self._least[chunk + 1 :] <= most)).tolist()):
            start = max(begin, other * CHUNK)
            found = np.flatnonzero(self._values[start : (other + 1) * CHUNK] <= most)
            if len(found):
                return start + int(found[0])
        return None

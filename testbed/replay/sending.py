"""The data that one worker has in flight, and the order of the rest: a credit in bytes, by priority."""

from __future__ import annotations

import heapq
import itertools
import threading
from collections.abc import Callable

Priority = tuple[int, ...]  # the smallest is sent first


class Window:
    """Credit of at most ``size`` outstanding bytes (BytePS); a single message may exceed it.

    Waiting messages go by priority, then in order of arrival.
    """

    def __init__(self, size: int) -> None:
        self.size = self.free = size
        self._lock = threading.Lock()
        self._waiting: list[tuple[Priority, int, int, Callable[[], None]]] = []
        self._numbers = itertools.count()

    def ask(self, priority: Priority, size: int, go: Callable[[], None]) -> bool:
        """Return True if ``size`` more bytes may be sent now; else ``go`` is called once credit suffices and no higher
        priority waits."""
        with self._lock:
            heapq.heappush(self._waiting, (priority, next(self._numbers), size, go))
            may = self._next_ones()
        for each in may:
            if each is not go:
                each()
        return any(each is go for each in may)

    def give_back(self, size: int) -> None:
        """Return the credit of ``size`` bytes that have arrived."""
        with self._lock:
            self.free += size
            may = self._next_ones()
        for each in may:
            each()

    def _next_ones(self) -> list[Callable[[], None]]:
        found = []
        while self._waiting and (self._waiting[0][2] <= self.free or self.free == self.size):
            _, _, size, go = heapq.heappop(self._waiting)
            self.free -= size
            found.append(go)
        return found


def pieces(size: int, most: int | None) -> list[int]:
    """Return the sizes of a tensor's parts: ``most`` bytes each, and the rest."""
    if most is None or size <= most:
        return [size] if size else []
    whole, rest = divmod(size, most)
    return [most] * whole + [rest] * (rest > 0)

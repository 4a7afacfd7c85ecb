"""The data that one worker has in flight, and the order of the rest: a credit in bytes, by priority."""

from __future__ import annotations

import heapq
import itertools
import threading
from collections.abc import Callable

Priority = tuple[int, ...]  # the smallest goes first


class Window:
    """At most ``size`` bytes on their way (BytePS's credits); one message always may, however large it is.

    Waiting messages go by priority, then in order of arrival.
    """

    def __init__(self, size: int) -> None:
        self.size = self.free = size
        self._lock = threading.Lock()
        self._waiting: list[tuple[Priority, int, int, Callable[[], None]]] = []
        self._numbers = itertools.count()

    def ask(self, priority: Priority, size: int, go: Callable[[], None]) -> bool:
        """Whether ``size`` bytes more may be sent at once; if not, ``go`` is called when credit is returned and no higher priority waits."""
        with self._lock:
            heapq.heappush(self._waiting, (priority, next(self._numbers), size, go))
            may = self._next_ones()
        for each in may:
            if each is not go:
                each()
        return any(each is go for each in may)

    def give_back(self, size: int) -> None:
        """So many have arrived."""
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
    """A tensor cut into parts of ``most`` bytes, and what is left."""
    if most is None or size <= most:
        return [size] if size else []
    whole, rest = divmod(size, most)
    return [most] * whole + [rest] * (rest > 0)

"""What one worker has on its way at a time, and who goes next: a window in bytes, by priority."""

from __future__ import annotations

import heapq
import itertools
import threading

Priority = tuple[int, ...]  # the smallest goes first


class Window:
    """At most ``size`` bytes on their way (BytePS's credits); one message always may, however large it is.

    Who waits goes by priority, then in the order in which they came.
    """

    def __init__(self, size: int) -> None:
        self.size = self.free = size
        self._lock = threading.Lock()
        self._waiting: list[tuple[Priority, int, int, threading.Lock]] = []
        self._numbers = itertools.count()

    def take(self, priority: Priority, size: int) -> None:
        """Wait until ``size`` bytes more may be sent, and nobody with a higher priority waits."""
        own = threading.Lock()
        own.acquire()
        with self._lock:
            heapq.heappush(self._waiting, (priority, next(self._numbers), size, own))
            self._let_go()
        own.acquire()

    def give_back(self, size: int) -> None:
        """So many have arrived."""
        with self._lock:
            self.free += size
            self._let_go()

    def _let_go(self) -> None:
        """Those in front that may: one by one, for thousands may wait, and each that is woken for nothing costs its share."""
        while self._waiting and (self._waiting[0][2] <= self.free or self.free == self.size):
            _, _, size, own = heapq.heappop(self._waiting)
            self.free -= size
            own.release()


def pieces(size: int, most: int | None) -> list[int]:
    """A tensor cut into parts of ``most`` bytes, and what is left."""
    if most is None or size <= most:
        return [size] if size else []
    whole, rest = divmod(size, most)
    return [most] * whole + [rest] * (rest > 0)

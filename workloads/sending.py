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
        self._changed = threading.Condition()
        self._waiting: list[tuple[Priority, int]] = []
        self._numbers = itertools.count()

    def take(self, priority: Priority, size: int) -> None:
        """Wait until ``size`` bytes more may be sent, and nobody with a higher priority waits."""
        with self._changed:
            turn = priority, next(self._numbers)
            heapq.heappush(self._waiting, turn)
            while self._waiting[0] != turn or not (size <= self.free or self.free == self.size):
                self._changed.wait()
            heapq.heappop(self._waiting)
            self.free -= size
            self._changed.notify_all()

    def give_back(self, size: int) -> None:
        """So many have arrived."""
        with self._changed:
            self.free += size
            self._changed.notify_all()


def pieces(size: int, most: int | None) -> list[int]:
    """A tensor cut into parts of ``most`` bytes, and what is left."""
    if most is None or size <= most:
        return [size] if size else []
    whole, rest = divmod(size, most)
    return [most] * whole + [rest] * (rest > 0)

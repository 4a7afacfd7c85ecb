"""Print progress where no terminal shows a live display: every 30 s a line with a count and the remaining time."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from testbed.core import terminal

EVERY_S = 30.0


def duration(seconds: float) -> str:
    """A duration in the unit that a reader would choose: 37 s, 4 min, 2.5 h."""
    if seconds < 90:
        return f"{max(0.0, seconds):.0f} s"
    if seconds < 90 * 60:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h"


def print_error(line: str) -> None:
    """Print a line to standard error at once."""
    terminal.say_error(line)


class Heartbeat:
    """Print ``line()`` every `EVERY_S` seconds while the context lasts; do nothing if not ``active``."""

    def __init__(
        self, line: Callable[[], str], say: Callable[[str], None] = print_error, *, active: bool = True,
    ) -> None:  # fmt: skip
        self.line, self.say, self.every_s = line, say, EVERY_S
        self.over = threading.Event()
        self.thread = threading.Thread(target=self._beat, name="heartbeat", daemon=True) if active else None

    def __enter__(self) -> Heartbeat:
        if self.thread is not None:
            self.thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self.over.set()
        if self.thread is not None:
            self.thread.join()

    def _beat(self) -> None:
        while not self.over.wait(self.every_s):
            self.say(self.line())


class Counter:
    """Number of completed equal parts of a command, and the remaining time at this pace."""

    def __init__(self, total: int, what: str, clock: Callable[[], float] = time.monotonic) -> None:
        self.total, self.what, self.done = total, what, 0
        self.clock, self.begun = clock, clock()

    def advance(self) -> None:
        """Another part is done."""
        self.done += 1

    @property
    def left_s(self) -> float | None:
        """Seconds that the other parts take; None before the first is done."""
        if not self.done:
            return None
        return (self.clock() - self.begun) / self.done * (self.total - self.done)

    def line(self) -> str:
        """The count and the time left, for `Heartbeat`."""
        left_s = self.left_s
        left = "" if left_s is None else f", about {duration(left_s)} left"
        return f"{self.done} of {self.total} {self.what} done{left}"

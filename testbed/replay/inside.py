"""Exchanges inside a server, which cross no network: their ranks wait for each other, and then for as long as they take.

Ranks of one server find each other by abstract names of Unix sockets. These are of the run's own network namespace, not of a host's: a server of
several interfaces has one for each.
"""

from __future__ import annotations

import socket
import struct
import threading
import time

from testbed.core.clock import sleep_until
from testbed.replay.operation import Operation

WORD = struct.Struct("!QQQQ")  # iteration, exchange, sender, ready time


def bound(name: str, rank: int) -> socket.socket:
    """The socket of one rank, in the network namespace that this is called in."""
    made = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    made.bind(f"\0{name} {rank}")
    return made


class Inside:
    """One rank's end of exchanges inside a server."""

    def __init__(self, rank: int, name: str, descriptor: int) -> None:
        """``name``: in front of every rank's; ``descriptor``: of this rank's own socket (`bound`)."""
        self.rank, self.prefix = rank, f"\0{name}"
        self.socket = socket.socket(fileno=descriptor)
        self.changed = threading.Condition()
        self.ready: dict[tuple[int, int, int], int] = {}
        threading.Thread(target=self._hear, daemon=True).start()

    def _hear(self) -> None:
        while True:
            iteration, exchange, rank, at_ns = WORD.unpack(self.socket.recv(WORD.size))
            with self.changed:
                self.ready[iteration, exchange, rank] = at_ns
                self.changed.notify_all()

    def carry_out(self, iteration: int, op: Operation) -> None:
        """Take the duration of one exchange, from when all of its ranks (or the sender of a message) are ready."""
        assert op.members is not None and op.inside_ns is not None
        now_ns = time.monotonic_ns()
        for other in op.members:
            if other != self.rank and op.kind != "recv":
                self.socket.sendto(WORD.pack(iteration, op.exchange, self.rank, now_ns), f"{self.prefix} {other}")
        if op.kind == "send":
            return
        others = [other for other in op.members if other != self.rank]
        begun_ns = max(
            [
                now_ns if op.kind != "recv" else 0,
                *(self._announced_ns(iteration, op.exchange, other) for other in others),
            ]
        )
        sleep_until(begun_ns + op.inside_ns)

    def _announced_ns(self, iteration: int, exchange: int, rank: int) -> int:
        with self.changed:
            while (iteration, exchange, rank) not in self.ready:
                self.changed.wait()
            return self.ready.pop((iteration, exchange, rank))

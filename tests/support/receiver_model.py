"""What the receiver of a message has to make of the packets that come, in plain Python: for tests to compare the core in C with."""

from __future__ import annotations

import struct
from dataclasses import dataclass, field

from testbed.transports.datagram import native

DATA = 3
HEADER = 60
COMPLETE, TOLERANCE, FRACTION, DEADLINE = range(4)


@dataclass
class Receiver:
    """Of one message; ``lt_ns`` and ``after_ns`` (below 0: none) count from its first packet. The first and the last one have to come."""

    size: int
    tolerance: float
    fraction: float
    lt_ns: int
    after_ns: int
    posted: int = native.NEVER  # when somebody asked for it
    began: int = 0
    content: dict[int, bytes] = field(default_factory=dict)  # by offset
    reason: int | None = None  # it ended for

    @property
    def delivered(self) -> int:
        return sum(map(len, self.content.values()))

    @property
    def holes(self) -> list[tuple[int, int]]:
        """What is missing; neighbours are one hole."""
        found: list[tuple[int, int]] = []
        at = 0
        for offset in [*sorted(self.content), self.size]:
            if offset > at:
                found.append((at, offset - at))
            at = offset + len(self.content.get(offset, b""))
        return found

    @property
    def critical_missing(self) -> bool:
        ends = {offset + len(payload) for offset, payload in self.content.items()}
        return 0 not in self.content or self.size not in ends

    @property
    def whole(self) -> bytes:
        """With zeros in its holes."""
        made = bytearray(self.size)
        for offset, payload in self.content.items():
            made[offset : offset + len(payload)] = payload
        return bytes(made)

    def post(self, now: int) -> None:
        self.until(now)
        self.posted = now
        self._consider(now)

    def take(self, datagram: bytes, now: int) -> None:
        """A packet of this message comes, for the first time or not, in time or not."""
        self.until(now)
        if self.reason is not None:
            return
        (offset,) = struct.unpack_from(">Q", datagram, 40)
        self.began = self.began or now
        self.content.setdefault(offset, datagram[HEADER:])
        self._consider(now)

    def until(self, now: int) -> None:
        """Time passes, up to this instant but without it."""
        for at in self._instants():
            if at < now:
                self._consider(at)

    def _instants(self) -> list[int]:
        """LT, and the deadline; none where only the whole is enough, whenever it comes, or nothing has come."""
        if not self.began or self.lt_ns < 0 or (self.fraction >= 1 and self.after_ns < 0):
            return []
        return [self.began + self.lt_ns] + [self.began + self.lt_ns + self.after_ns] * (self.after_ns >= 0)

    def _consider(self, now: int) -> None:
        if self.reason is not None or now < self.posted:
            return
        share, instants = self.delivered / self.size, self._instants()
        if self.delivered == self.size:
            self.reason = COMPLETE
        elif len(instants) == 2 and now >= instants[1]:
            self.reason = DEADLINE
        elif self.critical_missing:
            pass
        elif self.tolerance > 0 and share >= 1 - self.tolerance:
            self.reason = TOLERANCE
        elif instants and now >= instants[0] and share >= self.fraction:
            self.reason = FRACTION


def which(datagram: bytes) -> tuple[int, int] | None:
    """Round and number of the message that a packet is of; None: it holds no data."""
    if datagram[1] != DATA:
        return None
    first, second = struct.unpack_from(">II", datagram, 24)
    return int(first), int(second)

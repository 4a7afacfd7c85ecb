"""``python -I tests/support/by_the_book.py RANK OWN PEER PORT BYTES``: an end of the protocol as docs/reference/wire-format.md describes it, by nothing else.

It receives a message, round 0, and sends it back reversed, round 1; until the other end leaves. Every tenth packet is lost, either way.
"""

from __future__ import annotations

import secrets
import socket
import struct
import sys
import time

VERSION, SEGMENT, EVERY_S = 3, 1400, 0.1
HELLO, WELCOME, DATA, ACK, CLOSE, CLOSED, PING, PONG, END = range(1, 10)
RESENT = 2


class End:
    """One connection."""

    def __init__(self, rank: int, own: str, peer: str, port: int, size: int) -> None:
        self.rank, self.peer = rank, (peer, port)
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.socket.bind((own, port))
        self.socket.settimeout(EVERY_S / 10)
        self.mine, self.theirs, self.segment = secrets.randbits(64), 0, SEGMENT
        self.content, self.came, self.heard = bytearray(size), set[int](), set[int]()  # offsets; packet numbers
        self.closed = self.answered = self.connected = False
        self.number, self.flying, self.there = (
            0,
            dict[int, int](),
            set[int](),
        )  # offsets by packet number; those that are there
        self.next_s = 0.0

    @property
    def offsets(self) -> range:
        return range(0, len(self.content), self.segment)

    def say(self, kind: int, rest: bytes = b"", flags: int = 0) -> None:
        header = struct.pack(">BBHIQ", VERSION, kind, flags, self.rank, self.theirs)
        self.socket.sendto(header + rest, self.peer)

    def greet(self) -> None:
        """HELLO, to 0 until the id of its peer is known."""
        self.say(HELLO, struct.pack(">QH", self.mine, SEGMENT).ljust(48, b"\0"))

    def run(self) -> None:
        while True:
            if time.monotonic() >= self.next_s:
                self.next_s = time.monotonic() + EVERY_S
                self.again()
            try:
                datagram, source = self.socket.recvfrom(2000)
            except TimeoutError:
                continue
            if source == self.peer and self.hear(datagram):
                return

    def again(self) -> None:
        """What is said until it is answered."""
        if not self.connected:
            if self.rank == 0:
                self.greet()
        elif len(self.came) == len(self.offsets):
            if not self.closed:
                size = len(self.content)
                self.say(CLOSE, struct.pack(">IIQQBBHI", 0, 0, size, size, 0, 0, 0, 0))
            for offset in self.offsets:
                if not self.answered and offset not in self.there:
                    self.send(offset)

    def send(self, offset: int) -> None:
        payload = self.content[::-1][offset : offset + self.segment]
        flags = RESENT if offset in self.flying.values() else 0
        self.flying[self.number] = offset
        if self.number % 10 != 9:
            fields = self.number, 1, 0, len(self.content), offset, 0, 0, self.segment, len(payload)
            self.say(DATA, struct.pack(">QIIQQIIHH", *fields) + payload, flags)
        self.number += 1

    def hear(self, datagram: bytes) -> bool:
        """Whether that was the end."""
        version, kind, _, rank, to = struct.unpack_from(">BBHIQ", datagram)
        assert (version, rank) == (VERSION, 1 - self.rank), datagram[:16]
        if kind == HELLO:
            assert to in (0, self.mine) and len(datagram) == 64
            self.theirs, segment = struct.unpack_from(">QH", datagram, 16)
            self.segment = min(SEGMENT, segment)
            self.connected = to == self.mine
            self.say(PING) if self.connected else self.say(WELCOME, struct.pack(">QH", self.mine, SEGMENT))
            return False
        assert to == self.mine, "another connection's"
        self.connected = self.connected or kind != WELCOME
        if kind == WELCOME:
            self.theirs, segment = struct.unpack_from(">QH", datagram, 16)
            self.segment = min(SEGMENT, segment)
            self.greet()
        elif kind == PING:
            self.say(PONG)
        elif kind == DATA:
            self.take(datagram)
        elif kind == ACK:
            largest, _, _, _, length, _ = struct.unpack_from(">QQQIHH", datagram, 16)
            bits = int.from_bytes(datagram[48 : 48 + length], "little")
            told = [largest, *(largest - 1 - i for i in range(8 * length) if bits >> i & 1)]
            self.there |= {self.flying[number] for number in told}
            self.answered = self.answered or len(self.there) == len(self.offsets)
        elif kind == CLOSE:
            round_, message, size, delivered, why, _, _, _ = struct.unpack_from(">IIQQBBHI", datagram, 16)
            assert (round_, message, size, delivered, why) == (1, 0, len(self.content), len(self.content), 0)
            self.answered = True
            self.say(CLOSED, struct.pack(">II", round_, message))
        elif kind == CLOSED:
            assert struct.unpack_from(">II", datagram, 16) == (0, 0)
            self.closed = True
        elif kind == END:
            assert self.answered, "it leaves too early"
            assert struct.unpack(">I", datagram[16:]) == (1 - self.rank,), "nobody else is gone"
            return True
        else:
            assert kind == PONG, kind
        return False

    def take(self, datagram: bytes) -> None:
        number, round_, message, size, offset, _, _, segment, length = struct.unpack_from(">QIIQQIIHH", datagram, 16)
        assert (round_, message, size, segment) == (0, 0, len(self.content), self.segment)
        assert offset in self.offsets and length == min(segment, size - offset) == len(datagram) - 60
        if number % 10 == 9:
            return
        self.content[offset : offset + length] = datagram[60:]
        self.came.add(offset)
        self.heard.add(number)
        came = sum(min(segment, size - each) for each in self.came)
        largest = max(self.heard)
        bits = sum(1 << i for i in range(128) if largest - 1 - i in self.heard)
        times = time.monotonic_ns(), 0
        self.say(ACK, struct.pack(">QQQIHH", largest, came, *times, 16, 0) + bits.to_bytes(16, "little"))
        if len(self.came) == len(self.offsets):
            self.next_s = 0


if __name__ == "__main__":
    _, rank, own, peer, port, size = sys.argv
    End(int(rank), own, peer, int(port), int(size)).run()

"""The transports' core without sockets: two of them, a clock, and a network between them that loses what a test wants."""

from __future__ import annotations

import ctypes
import heapq
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from testbed.transports.datagram import native

MS = 10**6


@dataclass
class Sent:
    """A transfer that is under way, and the memory it goes from or to."""

    core: Core
    handle: int
    memory: ctypes.Array[ctypes.c_char] | None

    def result(self) -> native.Result:
        found = native.Result()
        self.core.library.dg_result(self.handle, found)
        return found

    def holes(self) -> list[tuple[int, int]]:
        spans = (native.Span * max(1, self.result().holes))()
        count = self.core.library.dg_holes(self.handle, spans, len(spans))
        return [(spans[number].offset, spans[number].bytes) for number in range(count)]

    @property
    def content(self) -> bytes:
        assert self.memory is not None
        return bytes(self.memory.raw)


Spans = Sequence[tuple[int, int]]  # offset, bytes


def _spans(spans: Spans) -> ctypes.Array[native.Span]:
    return (native.Span * len(spans))(*(native.Span(*span) for span in spans))


class Core:
    """One end."""

    def __init__(self, rank: int, ranks: int = 2, *, segment: int = 64, coalesce_ns: int = 0, acks: int = 16, seed: int = 1,
                 silence_ns: int = 3 * 10**9, reorder: int = 3, congestion: native.Congestion | None = None, slope: int = 0, offset: int = 0, rtts: int = 1500) -> None:  # fmt: skip
        native.build()
        self.library = native.load()
        settings = native.Settings(
            rank=rank, ranks=ranks, segment=segment, reorder=reorder, rtts_permille=rtts, acks=acks, coalesce_ns=coalesce_ns,
            silence_ns=silence_ns, seed=(ctypes.c_uint64 * 2)(seed, rank + 1), congestion=congestion or native.Congestion(),
            slope_permille=slope, offset_permille=offset,
        )  # fmt: skip
        self.rank = rank
        self.core = self.library.dg_new(settings)
        assert self.core

    def __del__(self) -> None:
        self.library.dg_delete(self.core)

    def send(self, to: int, data: bytes, *, round: int = 0, message: int = 0, now: int = 0, critical: Spans = ()) -> Sent:  # fmt: skip
        memory = ctypes.create_string_buffer(data, len(data))
        spans = _spans(critical)
        handle = self.library.dg_send(self.core, to, round, message, len(data), memory, None, spans, len(spans), now)
        assert handle
        return Sent(self, handle, memory)

    def receive(self, source: int, size: int, *, round: int = 0, message: int = 0, now: int = 0, tolerance: float = 0.0,
                fraction: float = 1.0, lt_ns: int = -1, after_ns: int = -1, group: int = 0, shared_lt: int = 0, keep: int = 0,
                critical: Spans = ()) -> Sent:  # fmt: skip
        memory = ctypes.create_string_buffer(b"\xee" * size, size)
        close = native.Close(tolerance, fraction, lt_ns, after_ns, group, shared_lt, keep)
        spans = _spans(critical)
        handle = self.library.dg_receive(self.core, source, round, message, size, memory, close, spans, len(spans), now)
        assert handle
        return Sent(self, handle, memory)

    def send_or_errno(self, to: int, size: int, *, now: int = 0) -> int:
        """0 if it is posted."""
        handle = self.library.dg_send(self.core, to, 0, 0, size, None, None, None, 0, now)
        return 0 if handle else ctypes.get_errno()

    def receive_or_errno(self, source: int, size: int, *, now: int = 0) -> int:
        """0 if it is posted."""
        close = native.Close(0.0, 1.0, -1, -1, 0, 0, 0)
        handle = self.library.dg_receive(self.core, source, 0, 0, size, None, close, None, 0, now)
        return 0 if handle else ctypes.get_errno()

    def input(self, datagram: bytes, now: int) -> int:
        return int(self.library.dg_input(self.core, datagram, len(datagram), now, now))

    def output(self, now: int) -> tuple[int, bytes] | None:
        """Whom the next datagram goes to, and what it is."""
        packet = native.Packet()
        if not self.library.dg_output(self.core, now, packet):
            return None
        payload = b""
        if packet.payload_bytes:
            payload = (
                ctypes.string_at(packet.payload, packet.payload_bytes)
                if packet.payload
                else bytes(packet.payload_bytes)
            )
        return packet.rank, bytes(packet.header[: packet.header_bytes]) + payload

    def next(self, now: int) -> int:
        return int(self.library.dg_next(self.core, now))

    def tick(self, now: int) -> None:
        self.library.dg_tick(self.core, now)

    def call(self, rank: int, now: int) -> None:
        self.library.dg_call(self.core, rank, now)

    def connected(self, rank: int) -> bool:
        return bool(self.library.dg_connected(self.core, rank))

    def end(self, whom: int | None = None) -> None:
        self.library.dg_end(self.core, self.rank if whom is None else whom)

    def counters(self, rank: int) -> native.Counters:
        found = native.Counters()
        self.library.dg_read(self.core, rank, found)
        return found


# When a datagram of some rank to another that leaves now arrives: never, once, or several times.
Fate = Callable[[int, int, bytes, int], list[int]]


@dataclass
class Network:
    """Cores, and what is on its way between them."""

    cores: list[Core]
    fate: Fate
    now: int = MS
    flying: list[tuple[int, int, int, bytes]] = field(default_factory=list)
    count: int = 0

    def connect(self) -> None:
        """Everybody calls everybody above, over a network that loses nothing."""
        fate, self.fate = self.fate, lambda _source, _target, _datagram, now: [now + MS // 10]
        for core in self.cores:
            for other in range(core.rank + 1, len(self.cores)):
                core.call(other, self.now)
        self.run(lambda: False, self.now + 50 * MS)
        assert all(one.connected(other.rank) for one in self.cores for other in self.cores if one is not other)
        self.fate = fate

    def run(self, over: Callable[[], bool], until: int) -> None:
        """Until ``over``, or the time ``until``, or nothing is left to do."""
        while not over() and self.now <= until:
            for core in self.cores:
                core.tick(self.now)
            for core in self.cores:
                while (leaving := core.output(self.now)) is not None:
                    target, datagram = leaving
                    for at in self.fate(core.rank, target, datagram, self.now):
                        self.count += 1
                        heapq.heappush(self.flying, (at, self.count, target, datagram))
            coming = min([core.next(self.now) for core in self.cores] + [at for at, *_ in self.flying[:1]])
            if coming >= native.NEVER:
                return
            self.now = max(self.now + 1, coming)
            while self.flying and self.flying[0][0] <= self.now:
                _, _, target, datagram = heapq.heappop(self.flying)
                self.cores[target].input(datagram, self.now)

"""The datagram endpoint: a worker's connections to its peers, a socket a channel."""

from __future__ import annotations

import ctypes
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from testbed.transports import (
    Buffer,
    Close,
    Connected,
    Connection,
    Counters,
    Datagrams,
    Endpoint,
    Flow,
    Listening,
    Message,
    Place,
    Tagger,
    Transfer,
    tcp,
)
from testbed.transports.datagram import native
from testbed.transports.datagram.engine import Engine
from testbed.transports.datagram.settings import DatagramOptions
from testbed.transports.datagram.transfer import DatagramTransfer


class DatagramListening:
    """Bound, a socket a channel; not yet connected to any peer."""

    def __init__(self, place: Place, options: DatagramOptions) -> None:
        self.place, self.options = place, options
        self.peers = sorted({end for flow in place.flows if place.rank in flow for end in flow} - {place.rank})
        self.channels = [Engine(place, options.core, channel) for channel in range(place.channels)]
        self.tcp: Listening | None = None
        if options.by_tcp is not None:
            self.tcp = tcp.listen(place, tcp.Options())

    def connect(self) -> DatagramConnected:
        """Ranks call those above them, and wait for those below."""
        for engine in self.channels:
            engine.connect(self.peers)
        return DatagramConnected(self.place, self.channels, self.tcp.connect() if self.tcp else None)


@dataclass(frozen=True)
class DatagramConnected:
    """All connections of a worker."""

    place: Place
    channels: list[Engine]
    tcp: Connected | None

    def endpoint(self, channel: int, flows: Sequence[Flow]) -> Endpoint:
        parameters = self.tcp.endpoint(channel, flows) if self.tcp else None
        return DatagramEndpoint(self.channels[channel], frozenset(flows), parameters)

    def connections(self) -> list[Connection]:
        at, first = self.place.addresses, self.place.first_counter
        return [
            Connection(*flow, channel, at[flow[0]], ports[flow[0]], at[flow[1]], ports[flow[1]], first + channel)
            for channel, ports in enumerate(engine.ports for engine in self.channels)
            for flow in self.place.flows
            if flow[0] == self.place.rank
        ]

    def sent(self) -> int:
        """Return the bytes handed to datagrams, plus those that the kernel counts for TCP."""
        return sum(engine.offered for engine in self.channels) + (self.tcp.sent() if self.tcp else 0)

    def windows(self) -> list[tuple[int, ...]]:
        return []

    def datagrams(self) -> Datagrams:
        found = [engine.counted() for engine in self.channels]
        return Datagrams(
            sum(int(own.sent) for own, _ in found), sum(int(own.received) for own, _ in found), max(burst for _, burst in found),
            sum(int(own.not_sent) for own, _ in found), sum(int(own.overflowed) for own, _ in found), sum(int(own.wake_ups) for own, _ in found),
            sum(engine.tagged for engine in self.channels), sum(engine.important for engine in self.channels),
        )  # fmt: skip


class DatagramEndpoint:
    """The endpoint of a collective with these flows; ``parameters``: the endpoint for parameters, if not datagrams."""

    def __init__(self, engine: Engine, flows: frozenset[Flow], parameters: Endpoint | None) -> None:
        self.engine, self.flows, self.parameters = engine, flows, parameters

    def post_send(self, to: int, m: Message, data: Buffer | None, tag: Tagger | None = None) -> Transfer:
        """Start to send. ``tag`` gives the priority queue of each packet; the endpoint itself drops nothing."""
        if self.parameters and m.stage == "parameter":
            return self.parameters.post_send(to, m, data, tag)
        engine = self.engine
        memory = None if data is None else _memory(bytes(data) if isinstance(data, bytes) else data)
        if tag is None and engine.core.tagger is not None:
            tag = engine.core.tagger(m, data, engine.library.endpoint_segment(engine.pointer, to))
        packet_tags = engine.tags(to, m, data, tag) if tag else []
        if (engine.place.rank, to) in self.flows:
            with engine.lock:
                engine.offered += m.bytes
                if m.stage == "gradient":
                    engine.tagged += len(packet_tags)
                    engine.important += sum(not each.droppable for each in packet_tags)
        handle = engine.library.endpoint_send(
            engine.pointer, to, m.round, _name(m), m.bytes, memory, engine.written(packet_tags) if tag else None,
            *_spans(m.critical),
        )  # fmt: skip
        return DatagramTransfer(engine, handle, to, m, memory)

    def post_receive(self, source: int, m: Message, into: Buffer | None, close: Close) -> Transfer:
        if self.parameters and m.stage == "parameter":
            return self.parameters.post_receive(source, m, into, close)
        engine, core = self.engine, self.engine.core
        memory = None if into is None else _memory(into)
        how = native.Close(tolerance=close.tolerated(m.round), fraction=close.fraction, lt_ns=-1, after_ns=-1)
        timing = None
        if close.fraction < 1:
            after_ns: int | None = None
            if close.lt_s is not None:
                how.lt_ns = int(close.lt_s * 1e9)
            else:
                timing = engine.timing(source, m)
                if timing is not None:
                    after_ns = timing.after_ns
                    how.lt_ns = -1 if timing.lt_ns is None else timing.lt_ns
            how.after_ns = int(core.after if after_ns is None else after_ns)
            if timing and timing.whole:
                how.fraction, how.after_ns = 1.0, -1
            if close.deadline_s is not None:
                how.after_ns = max(0, int(close.deadline_s * 1e9) - max(0, how.lt_ns))
        if close.group is not None:
            how.group = _group(close.group, m)
            how.shared_lt = core.shared_lt
        how.keep = close.missing != "zero"
        handle = engine.library.endpoint_receive(
            engine.pointer, source, m.round, _name(m), m.bytes, memory, how, *_spans(m.critical)
        )
        return DatagramTransfer(engine, handle, source, m, memory, timing=timing, receives=True)

    def counters(self, peer: int) -> Counters:
        found, own = native.Counters(), native.OwnCounters()
        self.engine.library.endpoint_read(self.engine.pointer, peer, found, own)
        return Counters(int(found.window), int(found.rtt_ns) // 1000, int(found.acked), int(found.resent))

    def end(self, reason: str, gone: int | None = None) -> None:
        """Peers are notified that this worker leaves, and because of which rank; the ``reason`` stays here."""
        self.engine.library.endpoint_end(self.engine.pointer, self.engine.place.rank if gone is None else gone)
        if self.parameters:
            self.parameters.end(reason)


def _name(m: Message) -> int:
    """Operation and part in 32 bits."""
    if not (0 <= m.operation < 1 << 16 and 0 <= m.part < 1 << 16):
        raise ValueError(f"operation {m.operation}, part {m.part}: an iteration has at most 65536 of each")
    return m.operation << 16 | m.part


def _group(name: str, m: Message) -> int:
    """The identifier that the messages of all workers to the same part of the same operation share; never 0."""
    return 1 + int.from_bytes(hashlib.sha256(f"{name} {m.operation} {m.part}".encode()).digest()[:7], "big")


def _spans(critical: Sequence[tuple[int, int]]) -> tuple[Any, int]:
    if not critical:
        return None, 0
    return (native.Span * len(critical))(*(native.Span(*span) for span in critical)), len(critical)


def _memory(buffer: Buffer) -> Any:
    """Return a ctypes view of the buffer's bytes; a read-only buffer is copied."""
    if isinstance(buffer, bytes) or (isinstance(buffer, memoryview) and buffer.readonly):
        return ctypes.create_string_buffer(bytes(buffer), len(buffer))
    return (ctypes.c_char * memoryview(buffer).nbytes).from_buffer(buffer)

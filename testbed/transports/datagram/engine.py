"""A socket of the datagram endpoint: its C core, and the state of its peers across rounds."""

from __future__ import annotations

import ctypes
import hashlib
import itertools
import os
import threading
import traceback
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from testbed.transports import COUNTERS_BYTES, Buffer, Message, Place, Tag, Tagger, TransportError
from testbed.transports.datagram import native, tags
from testbed.transports.datagram.settings import Core, Timing

RECEIVE_BYTES = 64 << 20
BATCH = 64  # ends that are reported at once
SEGMENTS = 44  # datagrams to a peer passed to the kernel in one call, limited by its 64 kB
CLASS_SELECTOR = 5  # its shift in that byte
MARKABLE = 2  # ECT(0) there (RFC 3168)


@dataclass
class Silence:
    """The rounds in which a peer's program has shown no activity; a late peer shows some after the deadline."""

    handed: int = 0  # of its marked datagrams, at the last check
    rounds: set[int] = field(default_factory=set)  # since then

    def hear(self, round: int, handed: int, *, nothing: bool) -> None:
        """Record the end of a message; ``nothing``: it ended at its deadline without any packet.

        ``handed``: marked datagrams so far.
        """
        if nothing and handed == self.handed:
            self.rounds.add(round)
        else:
            self.rounds.clear()
        self.handed = handed


class Engine:
    """A socket, its thread, and the state of its peers across rounds."""

    def __init__(self, place: Place, core: Core, channel: int) -> None:
        self.place, self.core = place, core
        self.library = native.load()
        self.offered = self.tagged = self.important = 0  # bytes; packets of gradients that a rule examined
        self.lock = threading.Lock()
        self.timings: dict[tuple[int, int, int], Timing] = {}
        self.silences: defaultdict[int, Silence] = defaultdict(Silence)  # of each peer
        self.followed: dict[int, Callable[[], None]] = {}  # by transfer name: function to call at its end
        self.names = itertools.count(1)
        self.calls_back = False  # a thread
        ranks = len(place.addresses)
        seed = hashlib.sha256(place.seed + bytes([channel])).digest() if place.seed else os.urandom(16)
        settings = native.Settings(
            rank=place.rank, ranks=ranks, segment=segment_bytes(place.mtu, signed=bool(place.key)), reorder=core.reorder,
            rtts_permille=round(1000 * core.rtts), acks=core.acks, coalesce_ns=int(core.coalesce), silence_ns=int(core.silence),
            seed=(ctypes.c_uint64 * 2)(int.from_bytes(seed[:8], "big"), int.from_bytes(seed[8:16], "big")),
            congestion=core.congestion or native.Congestion(), control_tag=core.control << CLASS_SELECTOR,
            discards=place.discards, slope_permille=round(1000 * core.f[0]) if core.f else 0, offset_permille=round(1000 * core.f[1]) if core.f else 0,
        )  # fmt: skip
        addresses = (ctypes.c_char_p * ranks)(*(address.encode() for address in place.addresses))
        self.ports = [place.port + channel + place.channels * rank * place.same_host for rank in range(ranks)]
        ports = (ctypes.c_uint16 * ranks)(*self.ports)
        counters = -1 if place.counters is None else place.counters
        # Under virtual time each separately: a host's queue would count, and drop, them together.
        spray_paths = place.paths if core.sprays else ()
        segments = SEGMENTS if place.copying and not spray_paths else 1
        paths = [address.encode() for each in spray_paths for address in each]
        self.pointer = self.library.endpoint_open(
            settings,
            addresses,
            ports,
            place.send_bytes,
            RECEIVE_BYTES,
            segments,
            place.key or None,
            counters,
            (place.first_counter + channel) * COUNTERS_BYTES,
            (ctypes.c_char_p * len(paths))(*paths),
            len(spray_paths[0]) if spray_paths else 0,
            not place.copying,
        )
        if not self.pointer:
            error = ctypes.get_errno()
            raise TransportError(f"no socket at {place.addresses[place.rank]}: {os.strerror(error)}")

    def connect(self, peers: Sequence[int]) -> None:
        for peer in peers:
            if peer > self.place.rank:
                self.library.endpoint_call(self.pointer, peer)
        for peer in peers:
            if not self.library.endpoint_await(self.pointer, peer, int(self.place.patience_s * 1e9)):
                raise TransportError(f"worker {peer} ({self.place.addresses[peer]}) does not answer")

    def tags(self, to: int, m: Message, data: Buffer | None, tag: Tagger) -> list[Tag]:
        """Return the tag of each packet of a message."""
        segment = self.library.endpoint_segment(self.pointer, to)
        whole = None if data is None else memoryview(data).cast("B")
        spans = [(at, min(segment, m.bytes - at)) for at in range(0, m.bytes, segment)]
        if whole is None:
            return [tag(span, value) for span, value in zip(spans, tags.drawn(m, len(spans)), strict=True)]
        return [tag((at, size), whole[at : at + size]) for at, size in spans]

    def written(self, packet_tags: Sequence[Tag]) -> bytes:
        """The second byte of the IP header of each packet: its band is a class selector (RFC 2474), and whether it may be marked."""
        marked = self.core.marked
        return bytes(
            each.band << CLASS_SELECTOR | (MARKABLE if marked and not each.droppable else 0) for each in packet_tags
        )

    def counted(self) -> tuple[native.OwnCounters, int]:
        """Return the counters of its socket, and the largest number of packets sent to a peer at one time."""
        found, own, burst = native.Counters(), native.OwnCounters(), 0
        for peer in range(len(self.place.addresses)):
            self.library.endpoint_read(self.pointer, peer, found, own)
            burst = max(burst, int(found.burst))
        return own, burst

    def handed(self, peer: int) -> int:
        """Received datagrams of a peer's messages, and those with which it reports one handed over too late."""
        found, own = native.Counters(), native.OwnCounters()
        self.library.endpoint_read(self.pointer, peer, found, own)
        return int(found.handed)

    def follow(self, handle: int, callback: Callable[[], None]) -> None:
        """``callback`` is called when this transfer has ended, by the one thread that does so for all of them."""
        with self.lock:
            name = next(self.names)
            self.followed[name] = callback
            if not self.calls_back:
                threading.Thread(target=self._call_back, daemon=True).start()
                self.calls_back = True
        if not self.library.endpoint_follow(self.pointer, handle, name):
            with self.lock:
                del self.followed[name]
            raise MemoryError

    def _call_back(self) -> None:
        names = (ctypes.c_uint64 * BATCH)()
        while count := self.library.endpoint_heard(self.pointer, names, BATCH):
            for name in names[:count]:
                with self.lock:
                    callback = self.followed.pop(name)
                try:
                    callback()
                except Exception:  # no waiting for other messages
                    traceback.print_exc()

    def timing(self, source: int, m: Message) -> Timing | None:
        """Return the timing of messages of this name; None if the transport has none."""
        if (make := self.core.timing) is None:
            return None
        with self.lock:
            name = (source, m.operation, m.part)
            if name not in self.timings:
                self.timings[name] = make()
            return self.timings[name]


def segment_bytes(mtu: int, *, signed: bool = False) -> int:
    """Return the payload of a packet in bytes: the largest multiple of 8 that fits."""
    return (mtu - native.UDP_IP_HEADERS - native.DATA_HEADER - native.MAC_BYTES * signed) // 8 * 8

"""LTP, the loss-tolerant transmission protocol for parameter-server training (Chen et al., IWQoS 2023), over UDP.

Gradients may lose a little: their receiver closes early (`Close`), everything else arrives whole. What the paper's abstract
publishes, and what others recall of it, is labelled in docs/transports.md; every number that is only recalled is an option.
"""

from __future__ import annotations

import ctypes
import errno
import hashlib
import itertools
import os
import threading
import traceback
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, cast, get_args

from testbed.core.options import Fraction, Integer, Number, OneOf, Time, option
from testbed.core.text import shown
from testbed.core.units import Duration
from testbed.transports import (
    COUNTERS_BYTES,
    Buffer,
    Close,
    Closed,
    Connected,
    Connection,
    Counters,
    Datagrams,
    Delivery,
    Endpoint,
    Flow,
    Importance,
    Listening,
    Message,
    Place,
    Span,
    Stage,
    Tag,
    Tagger,
    Transfer,
    TransportError,
    native,
    tags,
    tcp,
)

OWN, TCP = "ltp", "tcp"
RECEIVE_BYTES = 64 << 20
BATCH = 64  # ends that are heard of at once
SEGMENTS = 44  # datagrams to a peer that are handed to the kernel as one: what its 64 kB hold
CLASS_SELECTOR = 5  # where it stands in that byte
MARKABLE = 2  # ECT(0) there (RFC 3168)
SILENT_ROUNDS = 3  # then the run ends
FIRST_RTTS = 1.5  # RTprops in the first LT; recalled
RAISED = 1.5  # times LT, after an epoch in which nothing was complete; ours
CLOSED = cast(tuple[Closed, ...], get_args(Closed))


def _broadcast(text: str) -> str:
    if text != OWN and text.partition(":")[0] != TCP:
        raise ValueError(f"{shown(text)} is neither ltp nor tcp nor tcp:CONGESTION_CONTROL")
    return text


def _maybe_duration(text: str) -> Duration | None:
    return None if text == "adapts" else Duration.parse(text)


def progress(text: str) -> tuple[float, float] | None:
    """Slope and offset of F, as ``f=`` has them (MLTCP, arXiv 2402.09589); None: off."""
    if text == "off":
        return None
    slope, slash, offset = text.partition("/")
    if not slash:
        raise ValueError(f"{shown(text)} is neither off nor SLOPE/OFFSET, as in 1.75/0.25")
    return Number(0.001, 4)(slope), Number(0, 4)(offset)


@dataclass(frozen=True)
class Options:
    """What may be written behind ``ltp:``; recalled means: not confirmed by anything published."""

    fraction: float = option(0.8, "of a gradient, enough once LT is over; recalled; default 0.8", Fraction())
    tolerance: float = option(0.0, "share of a gradient that may be missing at any time; default 0", Fraction())
    lt: Duration | None = option(
        None,
        "the first threshold; adapts (default): rtts RTprop + bytes ÷ BtlBw, then once an epoch",
        _maybe_duration,
    )
    c: Duration = option(Duration.parse("30ms"), "from LT to the deadline; recalled; default 30ms", Time())
    per: str = option(
        "worker", "whose first packet LT counts from: worker (default) or round", OneOf("worker", "round")
    )
    rtts: float = option(
        FIRST_RTTS, "RTprops in the first LT, beside bytes ÷ BtlBw; recalled; default 1.5", Number(0, 100)
    )
    epoch: int = option(10, "rounds after which LT adapts; default 10", Integer(1, 10**6))
    rise: float = option(
        RAISED, "times LT, after an epoch in which nothing came whole; ours; default 1.5", Number(1, 100)
    )
    broadcast: str = option("ltp", "how parameters travel: ltp (default), tcp or tcp:CONGESTION_CONTROL", _broadcast)
    coalesce: Duration = option(
        Duration.parse("20us"),
        "for how long a receiver rests after each look at its socket; default 20us",
        Time(),
    )
    reorder: int = option(
        3, "later packets acknowledged, until one counts as lost; recalled; default 3", Integer(1, 10**6)
    )
    acks: int = option(
        16, "packets that an acknowledgement waits for at most; 1: one for each; default 16", Integer(1, 10**6)
    )
    silence: Duration = option(
        Duration.parse("30s"),
        "without a word of a peer, or without an acknowledgement of what is sent to it, until it counts as gone; default 30s",
        Time(),
    )
    f: tuple[float, float] | None = option(
        None, "SLOPE/OFFSET: how strongly it probes for bandwidth, by what of the round's bytes is delivered, as MLTCP; off (default)", progress
    )  # fmt: skip

    @property
    def by_tcp(self) -> str | None:
        """The congestion control that parameters travel with, if by TCP; ``""``: as everybody's."""
        name, _, cc = self.broadcast.partition(":")
        return cc if name == TCP else None

    @property
    def core(self) -> Core:
        return Core(
            self.reorder,
            self.acks,
            self.coalesce,
            self.silence,
            after=self.c,
            per=self.per,
            epoch=self.epoch,
            rtts=self.rtts,
            rise=self.rise,
            f=self.f,
        )


class Timing(Protocol):
    """When messages of a name are closed, by how earlier ones went; one for each that comes in a round."""

    @property
    def whole(self) -> bool:
        """Everything arrives, however long it takes."""
        ...

    @property
    def lt_ns(self) -> int | None:
        """Since its first packet (or the round's, by `Core.per`); None: what the sender measures decides."""
        ...

    @property
    def after_ns(self) -> int | None:
        """From there to the deadline; None: as `Core.after` says."""
        ...

    def heard(self, round: int, took_ns: int, own_ns: int, lost: float) -> None:
        """One ended: so long after the round's clock began, and its own, and this share is missing."""
        ...


@dataclass(frozen=True)
class Core:
    """What the core in C is told, and how its endpoint is used, for whatever transport goes by it."""

    reorder: int  # later packets acknowledged, until one counts as lost
    acks: int  # packets that an acknowledgement waits for at most
    coalesce: Duration
    silence: Duration
    after: Duration = Duration(0)  # from LT to the deadline
    per: str = "worker"
    epoch: int = 1
    rtts: float = FIRST_RTTS  # of RTprop, in the first LT
    rise: float = RAISED  # times LT, after an epoch in which nothing was complete
    rule: native.Rule | None = None  # how fast to send; None: as LTP does
    # Slope and offset of how strongly it probes, or its rate grows by a rule; None: alike all the time.
    f: tuple[float, float] | None = None
    control: int = 0  # class selector of what is no data
    marked: bool = False  # of a message's packets those that may not be dropped are said to be markable (ECT, RFC 3168)
    sprays: bool = False  # over all of a host's addresses, if it has several
    tagger: Callable[[Message, Buffer | None, int], Tagger] | None = None  # where the caller has none
    timing: Callable[[], Timing] | None = None  # of each message's name; None: as LTP does


class Wanted(Protocol):
    """Options of a transport that goes by the core."""

    @property
    def core(self) -> Core: ...
    @property
    def by_tcp(self) -> str | None: ...


DATAGRAMS = True


def lossy(_options: Options) -> bool:
    """Its messages are counted one by one, also where they all arrive."""
    return True


def close(options: Options, stage: Stage) -> Close:
    """A gradient by the options; a parameter only whole."""
    if stage == "parameter":
        return Close()
    return Close(
        tolerance=options.tolerance,
        fraction=options.fraction,
        lt_s=None if options.lt is None else options.lt / 1e9,
        group="round",
    )


def tagger(m: Message) -> Tagger:
    """The band above all others for the critical spans of ``m``: the first and the last packet, and those it names."""
    spans = ((0, 1), (m.bytes - 1, 1), *m.critical)

    def tag(span: Span, _content: Buffer | Importance) -> Tag:
        begin, end = span[0], span[0] + span[1]
        return Tag(band=1) if any(begin < at + size and at < end for at, size in spans) else Tag(droppable=True)

    return tag


class Threshold:
    """LT of one message of a worker, round after round: the shortest time in which it came whole in the epoch before, since its own
    first packet (or, if ``shared``, the round's); the deadline is ``after_ns`` behind the same by the round's clock.

    As recalled it could only fall, and a network that becomes slower would close every round early for ever; here it rises
    by half after an epoch in which nothing came whole.
    """

    whole = False

    def __init__(self, epoch: int, rise: float = RAISED, *, after: int = 0, shared: bool = False) -> None:
        self.epoch, self.rise, self.after, self.shared = epoch, rise, after, shared
        self.lt_ns: int | None = None  # None: what the sender measures decides
        self.after_ns: int | None = None
        self._by_round = 0
        self._first: int | None = None  # round of the epoch
        self._whole: list[tuple[int, int]] = []  # since its own first packet, or as LT counts, and since the round's
        self._longest = (0, 0)

    def heard(self, round: int, took_ns: int, own_ns: int, lost: float) -> None:
        """A message of ``round`` ended after so long, by the round's clock and by its own."""
        if self._first is None:
            self._first = round
        if round >= self._first + self.epoch:
            self._adapt()
            self._first = round
        took = (took_ns if self.shared or lost == 1 else own_ns, took_ns)  # what never began has no clock of its own
        if not lost:
            self._whole.append(took)
        self._longest = max(self._longest[0], took[0]), max(self._longest[1], took[1])

    def _adapt(self) -> None:
        if self._whole:
            own, by_round = (min(times) for times in zip(*self._whole, strict=True))
        else:
            own, by_round = self._longest if self.lt_ns is None else (self.lt_ns, self._by_round)
            own, by_round = int(own * self.rise), int(by_round * self.rise)
        self.lt_ns, self._by_round, self.after_ns = own, by_round, self.after + by_round - own
        self._whole, self._longest = [], (0, 0)


@dataclass
class Silence:
    """For how long a peer's program has shown nothing of itself; who is only late does, if after the deadline."""

    handed: int = 0  # of its datagrams that say so, when last looked at
    rounds: set[int] = field(default_factory=set)  # since then

    def hear(self, round: int, handed: int, *, nothing: bool) -> None:
        """A message of it ended, at its deadline if ``nothing`` of it had come."""
        if nothing and handed == self.handed:
            self.rounds.add(round)
        else:
            self.rounds.clear()
        self.handed = handed


class LtpListening:
    """Bound, a socket a channel; nobody has been called."""

    def __init__(self, place: Place, options: Wanted) -> None:
        self.place, self.options = place, options
        self.peers = sorted({end for flow in place.flows if place.rank in flow for end in flow} - {place.rank})
        self.channels = [_Engine(place, options.core, channel) for channel in range(place.channels)]
        self.tcp: Listening | None = None
        if options.by_tcp is not None:
            self.tcp = tcp.listen(place, tcp.Options())

    def connect(self) -> LtpConnected:
        """Ranks call those above them, and wait for those below."""
        for engine in self.channels:
            engine.connect(self.peers)
        return LtpConnected(self.place, self.channels, self.tcp.connect() if self.tcp else None)


def listen(place: Place, options: Options) -> LtpListening:
    return LtpListening(place, options)


@dataclass(frozen=True)
class LtpConnected:
    """All of a worker's connections."""

    place: Place
    channels: list[_Engine]
    tcp: Connected | None

    def endpoint(self, channel: int, flows: Sequence[Flow]) -> Endpoint:
        parameters = self.tcp.endpoint(channel, flows) if self.tcp else None
        return LtpEndpoint(self.channels[channel], frozenset(flows), parameters)

    def connections(self) -> list[Connection]:
        at, port = self.place.addresses, self.place.port
        return [
            Connection(*flow, channel, at[flow[0]], port + channel, at[flow[1]], port + channel)
            for channel in range(self.place.channels)
            for flow in self.place.flows
            if flow[0] == self.place.rank
        ]

    def sent(self) -> int:
        """By LTP as it was handed over, by TCP as the kernel counts it."""
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


class _Engine:
    """A socket, the thread behind it, and what is kept of its peers from round to round."""

    def __init__(self, place: Place, core: Core, channel: int) -> None:
        self.place, self.core = place, core
        self.library = native.load()
        self.offered = self.tagged = self.important = 0  # bytes; packets of gradients that a rule looked at
        self.lock = threading.Lock()
        self.timings: dict[tuple[int, int, int], Timing] = {}
        self.silences: defaultdict[int, Silence] = defaultdict(Silence)  # of each peer
        self.followed: dict[int, Callable[[], None]] = {}  # what to call when a transfer has ended, by its name
        self.names = itertools.count(1)
        self.calls_back = False  # a thread
        ranks = len(place.addresses)
        seed = hashlib.sha256(place.seed + bytes([channel])).digest() if place.seed else os.urandom(16)
        settings = native.Settings(
            rank=place.rank, ranks=ranks, segment=segment_bytes(place.mtu, signed=bool(place.key)), reorder=core.reorder,
            rtts_permille=round(1000 * core.rtts), acks=core.acks, coalesce_ns=int(core.coalesce), silence_ns=int(core.silence),
            seed=(ctypes.c_uint64 * 2)(int.from_bytes(seed[:8], "big"), int.from_bytes(seed[8:16], "big")),
            rule=core.rule or native.Rule(), control_tag=core.control << CLASS_SELECTOR,
            discards=place.discards, slope_permille=round(1000 * core.f[0]) if core.f else 0, offset_permille=round(1000 * core.f[1]) if core.f else 0,
        )  # fmt: skip
        addresses = (ctypes.c_char_p * ranks)(*(address.encode() for address in place.addresses))
        ports = (ctypes.c_uint16 * ranks)(*([place.port + channel] * ranks))
        counters = -1 if place.counters is None else place.counters
        # Under virtual time each by itself: a host's queue would count, and drop, them together.
        ways = place.paths if core.sprays else ()
        segments = SEGMENTS if place.copying and not ways else 1
        paths = [address.encode() for each in ways for address in each]
        self.pointer = self.library.endpoint_open(
            settings,
            addresses,
            ports,
            place.send_bytes,
            RECEIVE_BYTES,
            segments,
            place.key or None,
            counters,
            channel * COUNTERS_BYTES,
            (ctypes.c_char_p * len(paths))(*paths),
            len(ways[0]) if ways else 0,
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
        """Of each packet of a message."""
        segment = self.library.endpoint_segment(self.pointer, to)
        whole = None if data is None else memoryview(data).cast("B")
        spans = [(at, min(segment, m.bytes - at)) for at in range(0, m.bytes, segment)]
        if whole is None:
            return [tag(span, value) for span, value in zip(spans, tags.drawn(m, len(spans)), strict=True)]
        return [tag((at, size), whole[at : at + size]) for at, size in spans]

    def written(self, said: Sequence[Tag]) -> bytes:
        """The second byte of the IP header of each packet: its band is a class selector (RFC 2474), and whether it may be marked."""
        marked = self.core.marked
        return bytes(each.band << CLASS_SELECTOR | (MARKABLE if marked and not each.droppable else 0) for each in said)

    def counted(self) -> tuple[native.OwnCounters, int]:
        """Its socket's, and most packets that ever left to a peer at one instant."""
        found, own, burst = native.Counters(), native.OwnCounters(), 0
        for peer in range(len(self.place.addresses)):
            self.library.endpoint_read(self.pointer, peer, found, own)
            burst = max(burst, int(found.burst))
        return own, burst

    def handed(self, peer: int) -> int:
        """Datagrams of a peer's messages that have come, and those that say that it has handed one over too late."""
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
                except Exception:  # its own affair: others wait for theirs
                    traceback.print_exc()

    def timing(self, source: int, m: Message) -> Timing:
        with self.lock:
            name = (source, m.operation, m.part)
            if name not in self.timings:
                self.timings[name] = (
                    self.core.timing()
                    if self.core.timing
                    else Threshold(
                        self.core.epoch, self.core.rise, after=int(self.core.after), shared=self.core.per == "round"
                    )
                )
            return self.timings[name]


def segment_bytes(mtu: int, *, signed: bool = False) -> int:
    """Payload of a packet: what fits, in whole numbers of every size."""
    return (mtu - native.UDP_IP_HEADERS - native.DATA_HEADER - native.MAC_BYTES * signed) // 8 * 8


class LtpEndpoint:
    """For a collective with these flows; ``parameters``: what carries those, if not LTP."""

    def __init__(self, engine: _Engine, flows: frozenset[Flow], parameters: Endpoint | None) -> None:
        self.engine, self.flows, self.parameters = engine, flows, parameters

    def post_send(self, to: int, m: Message, data: Buffer | None, tag: Tagger | None = None) -> Transfer:
        """``tag`` says of each packet in which band it travels; LTP has one path, and drops nothing by itself."""
        if self.parameters and m.stage == "parameter":
            return self.parameters.post_send(to, m, data, tag)
        engine = self.engine
        memory = None if data is None else _memory(bytes(data) if isinstance(data, bytes) else data)
        if tag is None and engine.core.tagger is not None:
            tag = engine.core.tagger(m, data, engine.library.endpoint_segment(engine.pointer, to))
        said = engine.tags(to, m, data, tag) if tag else []
        if (engine.place.rank, to) in self.flows:
            with engine.lock:
                engine.offered += m.bytes
                if m.stage == "gradient":
                    engine.tagged += len(said)
                    engine.important += sum(not each.droppable for each in said)
        handle = engine.library.endpoint_send(
            engine.pointer, to, m.round, _name(m), m.bytes, memory, engine.written(said) if tag else None,
            *_spans(m.critical),
        )  # fmt: skip
        return _Transfer(engine, handle, to, m, memory)

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
                after_ns = timing.after_ns
                how.lt_ns = -1 if timing.lt_ns is None else timing.lt_ns
            how.after_ns = int(core.after if after_ns is None else after_ns)
            if timing and timing.whole:
                how.fraction, how.after_ns = 1.0, -1
            if close.deadline_s is not None:
                how.after_ns = max(0, int(close.deadline_s * 1e9) - max(0, how.lt_ns))
        if close.group is not None:
            how.group = _group(close.group, m)
            how.shared_lt = core.per == "round"
        how.keep = close.missing != "zero"
        handle = engine.library.endpoint_receive(
            engine.pointer, source, m.round, _name(m), m.bytes, memory, how, *_spans(m.critical)
        )
        return _Transfer(engine, handle, source, m, memory, timing=timing, receives=True)

    def counters(self, peer: int) -> Counters:
        found, own = native.Counters(), native.OwnCounters()
        self.engine.library.endpoint_read(self.engine.pointer, peer, found, own)
        return Counters(int(found.window), int(found.rtt_ns) // 1000, int(found.acked), int(found.resent))

    def end(self, reason: str, gone: int | None = None) -> None:
        """Peers are told that this worker leaves, and because of whom; the ``reason`` stays here."""
        self.engine.library.endpoint_end(self.engine.pointer, self.engine.place.rank if gone is None else gone)
        if self.parameters:
            self.parameters.end(reason)


@dataclass
class _Transfer:
    engine: _Engine
    handle: int | None
    peer: int
    message: Message
    memory: Any  # kept until it has ended
    timing: Timing | None = None
    receives: bool = False
    lock: threading.Lock = field(default_factory=threading.Lock)
    delivery: Delivery | None = None
    gone: int = 0  # who, if that is how it ended
    stalled: bool = False  # the peer answered until then, and acknowledged nothing
    asking: int = 0  # threads that look at what the core knows of it,
    released: bool = False  # which it forgets when nobody does

    def __post_init__(self) -> None:
        if not self.handle:
            raise _refused(ctypes.get_errno(), self.peer, self.message)

    def wait(self, timeout_s: float | None = None) -> Delivery:
        if self.delivery is None:
            result = self._result(native.NEVER if timeout_s is None else int(timeout_s * 1e9))
            if not result.done:
                raise TimeoutError(f"{self.message.bytes} bytes were not there within {timeout_s:g} s")
            with self.lock:
                if self.delivery is None:
                    self.delivery = self._ended(result)
            self._release()
        if self.delivery.closed == "gone":
            silence = f"{self.engine.core.silence / 1e9:g} s"
            how = f"has acknowledged nothing for {silence}" if self.stalled else "is gone"
            raise TransportError(f"worker {self.gone} {how}", gone=self.gone)
        if len(self.engine.silences[self.peer].rounds) >= SILENT_ROUNDS:
            raise TransportError(f"worker {self.peer} has sent nothing for {SILENT_ROUNDS} rounds", gone=self.peer)
        return self.delivery

    def done(self) -> bool:
        return self.delivery is not None or bool(self._result(0).done)

    def on_done(self, callback: Callable[[Transfer], None]) -> None:
        def ended() -> None:
            with self.lock:
                self.asking -= 1
            self._release()
            callback(self)

        with self.lock:
            if there := not self.released:
                self.asking += 1
        if there:
            try:
                self.engine.follow(self.handle or 0, ended)
            except MemoryError:
                with self.lock:
                    self.asking -= 1
                raise
        else:
            callback(self)

    def _result(self, patience_ns: int) -> native.Result:
        result = native.Result()
        with self.lock:
            if self.released:
                result.done = 1
                return result
            self.asking += 1
        self.engine.library.endpoint_wait(self.engine.pointer, self.handle, patience_ns, result)
        with self.lock:
            self.asking -= 1
        return result

    def _release(self) -> None:
        """The core may forget it, once it is known how it ended and no other thread waits for that."""
        with self.lock:
            if self.delivery is None or self.asking or self.released:
                return
            self.released, self.memory = True, None
        self.engine.library.endpoint_release(self.engine.pointer, self.handle)

    def _ended(self, result: native.Result) -> Delivery:
        spans = (native.Span * result.holes)()
        if result.holes:
            self.engine.library.endpoint_holes(self.engine.pointer, self.handle, spans, result.holes)
        self.gone, self.stalled = int(result.gone), bool(result.stalled)
        closed = CLOSED[result.reason]
        if self.timing and closed != "gone":
            lost = 1 - result.delivered / result.bytes
            took_ns, own_ns = result.last_ns - result.clock_ns, result.last_ns - result.first_ns
            self.timing.heard(self.message.round, took_ns, own_ns, lost)
        if self.receives and self.message.stage == "gradient":
            nothing = closed == "deadline" and not result.delivered
            self.engine.silences[self.peer].hear(self.message.round, self.engine.handed(self.peer), nothing=nothing)
        return Delivery(
            int(result.bytes), int(result.delivered), closed, tuple((span.offset, span.bytes) for span in spans),
            int(result.resent), int(result.first_ns), int(result.last_ns),
        )  # fmt: skip


def _refused(why: int, peer: int, m: Message) -> TransportError:
    """The error for a message that the core has not posted; ``why`` is an errno (`ltp_send` in protocol.h)."""
    if why == errno.ENOTCONN:
        return TransportError(f"worker {peer}: not connected. Post messages after connect() has returned.")
    if why == errno.ENOMEM:
        return TransportError(f"worker {peer}: out of memory for a message of {m.bytes} bytes.")
    if why == errno.EEXIST:
        return TransportError(f"round {m.round}: a message of this name is under way with worker {peer}")
    return TransportError(f"worker {peer}: a message of {m.bytes} bytes cannot be posted ({os.strerror(why)}).")


def _name(m: Message) -> int:
    """Operation and part in 32 bits."""
    if not (0 <= m.operation < 1 << 16 and 0 <= m.part < 1 << 16):
        raise ValueError(f"operation {m.operation}, part {m.part}: an iteration has at most 65536 of each")
    return m.operation << 16 | m.part


def _group(name: str, m: Message) -> int:
    """What the messages of all workers to the same part of the same operation have in common; never 0."""
    return 1 + int.from_bytes(hashlib.sha256(f"{name} {m.operation} {m.part}".encode()).digest()[:7], "big")


def _spans(critical: Sequence[tuple[int, int]]) -> tuple[Any, int]:
    if not critical:
        return None, 0
    return (native.Span * len(critical))(*(native.Span(*span) for span in critical)), len(critical)


def _memory(buffer: Buffer) -> Any:
    """The address of its bytes; what is read-only is copied."""
    if isinstance(buffer, bytes) or (isinstance(buffer, memoryview) and buffer.readonly):
        return ctypes.create_string_buffer(bytes(buffer), len(buffer))
    return (ctypes.c_char * memoryview(buffer).nbytes).from_buffer(buffer)

"""Transports, one file each: how the bytes of a collective get from one worker to another.

A transport runs inside a host, with only the standard library and the C core (`testbed.transports.datagram.native`, by
ctypes). It is one file that satisfies `Module`; its options satisfy `TransportOptions`. examples/transport_deadline.py
is the shortest one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cache
from typing import Any, Literal, Protocol, cast

from testbed import registry
from testbed.core import options, system_text
from testbed.core.errors import RequestError, TestbedError
from testbed.core.text import quoted

Buffer = bytes | bytearray | memoryview
Flow = tuple[int, int]  # from one rank to another
Span = tuple[int, int]  # offset and length, in bytes
Stage = Literal["gradient", "parameter"]
Closed = Literal["complete", "tolerance", "fraction", "deadline", "round", "gone"]


COUNTERS_BYTES = 4096  # of a channel, in the file of counters for samplers


class TransportError(TestbedError, OSError):
    """A peer is gone, or breaks the protocol; the message names the peer.

    ``gone``: the rank of a lost peer, if that is the reason. A worker that leaves because of it reports that rank to its peers (`Endpoint.end`).
    """

    def __init__(self, what: str = "", where: str = "", *, gone: int | None = None) -> None:
        super().__init__(what, where)
        self.gone = gone


@dataclass(frozen=True)
class Message:
    """One tensor, or a part of one, in transfer; both ends know these values in advance."""

    round: int  # the job's iteration
    operation: int  # the collective, by its place in the iteration
    part: int  # of the operation, on this flow
    bytes: int
    stage: Stage
    layer: int = 0
    layers: int = 1
    element: int = 4  # bytes of a number, which no packet cuts
    critical: tuple[Span, ...] = ()  # arrives, even if other data is given up
    importance: tuple[
        float, ...
    ] = ()  # of its packets, for messages without content (`testbed.transports.datagram.tags.drawn`)
    before: int = 0  # bytes of the same tensor on this flow that came in parts before this one
    behind: int = 0  # bytes of the tensor after it
    # Data that gives packets their importance, if not the sent bytes.
    weighs: Buffer | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True)
class Phase:
    """A tolerance that follows a training: from ``first`` in its first round evenly to ``last`` after so many ``rounds``, then that."""

    first: float
    last: float
    rounds: int

    def of(self, round: int) -> float:
        return self.first + (self.last - self.first) * min(1.0, round / self.rounds)


def resyncs(every: int, round: int) -> bool:
    """Return True if a round is the last of every ``every`` rounds; never for 0."""
    return every > 0 and (round + 1) % every == 0


@dataclass(frozen=True)
class Close:
    """The limits at which a receiver stops receiving a message.

    It stops at once with at most ``tolerance`` missing, after LT with ``fraction`` received, and at the deadline in any
    case. ``lt_s`` and ``deadline_s`` are seconds after the clock's start, which is the first packet; None: the
    transport determines them. With a ``fraction`` of 1 only the complete message is enough, after any time.
    """

    tolerance: float | Phase = 0.0
    fraction: float = 1.0
    lt_s: float | None = None
    deadline_s: float | None = None
    resync: int = 0  # period in rounds with complete delivery, for any tolerance; 0: never
    group: str | None = None  # messages of a round that share one clock
    missing: Literal["zero", "keep", "local"] = "zero"  # content of a missing range: zeros, or its former content
    end_to_end: bool = False  # the tolerance is for all hops of a ring together, not for each
    hops: int = 1  # number of hops of the message

    def tolerated(self, round: int) -> float:
        """The share that may be missing in a round; both ends reckon it, so that they agree."""
        if resyncs(self.resync, round):
            return 0.0
        whole = self.tolerance.of(round) if isinstance(self.tolerance, Phase) else self.tolerance
        return whole if self.hops == 1 else 1 - float((1 - whole) ** (1 / self.hops))

    def over(self, hops: int) -> Close:
        """Return the limits for a message that is forwarded over ``hops`` hops, each of which can lose data for all
        later ones."""
        return replace(self, hops=hops) if self.end_to_end else self


@dataclass(frozen=True)
class Delivery:
    """The end of a message, the same at both ends; times on the monotonic clock."""

    bytes: int
    delivered: int
    closed: Closed
    holes: tuple[Span, ...] = ()
    resent: int = 0  # retransmitted bytes
    first_ns: int = 0  # arrival of the first and of the last packet
    last_ns: int = 0


@dataclass(frozen=True)
class Tag:
    """The labels of a packet for the network: its priority queue, and whether it may be dropped; raises `ValueError` for a separate path."""

    band: int = 0
    droppable: bool = False
    path: int = (
        0  # number of the path, for the interface only: a transport sprays over its paths, or uses one (`Place.paths`)
    )

    def __post_init__(self) -> None:
        if self.path:
            raise ValueError(
                f"a tag asks for path {self.path}: no transport lets a packet choose one, but takes one path, or all in turn (spray=on); leave it out"
            )


@dataclass(frozen=True)
class Importance:
    """The importance of a span without content."""

    value: float


Tagger = Callable[[Span, Buffer | Importance], Tag]


@dataclass(frozen=True)
class Counters:
    """A connection to a peer, as ``flows.csv`` has it."""

    window_packets: int
    rtt_us: int
    acked_bytes: int
    resent_packets: int


@dataclass(frozen=True)
class Datagrams:
    """Counts of datagrams that a worker has sent and received so far, all its sockets together."""

    sent: int
    received: int
    burst: int  # most of them with data that left to a peer at one instant
    not_sent: int  # datagrams that this host rejected
    overflowed: int  # datagrams dropped because socket buffers were full
    wake_ups: int
    tagged: int = 0  # packets of gradients that a rule examined (MLT)
    important: int = 0  # number of these that a switch may not drop

    def with_others(self, other: Datagrams) -> Datagrams:
        """The sums with the counts of other sockets of the same worker."""
        both = {one.name: getattr(self, one.name) + getattr(other, one.name) for one in fields(self)}
        return Datagrams(**both | {"burst": max(self.burst, other.burst)})


class Transfer(Protocol):
    """A message that is being sent or received."""

    def wait(self, timeout_s: float | None = None) -> Delivery:
        """Wait until the transfer has ended. Raises `TransportError` (the peer is gone) or `TimeoutError`."""
        ...

    def done(self) -> bool: ...
    def on_done(self, callback: Callable[[Transfer], None]) -> None:
        """Call ``callback`` once when it has ended, from another thread; `wait` then returns at once. The callback must not wait for other transfers."""
        ...


class Endpoint(Protocol):
    """One worker's end of its connections; it is thread-safe and allows many concurrent transfers."""

    def post_send(self, to: int, m: Message, data: Buffer | None, tag: Tagger | None = None) -> Transfer:
        """Start to send; with ``data`` None, sends ``m.bytes`` bytes without content."""
        ...

    def post_receive(self, source: int, m: Message, into: Buffer | None, close: Close) -> Transfer: ...
    def counters(self, peer: int) -> Counters: ...
    def end(self, reason: str, gone: int | None = None) -> None:
        """End all remaining transfers with ``reason``; ``gone``: the rank of a lost peer, if that is the reason, which is reported to peers."""
        ...


class Bands(Protocol):
    """Mark a worker's packets by the remaining bytes of its iteration (`testbed.replay.bands`)."""

    def claim(self, link: Any, size: int) -> int: ...
    def give_back(self, size: int) -> None: ...
    def raise_to_top(self, link: Any) -> None: ...


@dataclass(frozen=True)
class Place:
    """A worker's position in the job: its addresses, its peers, and its settings."""

    rank: int
    addresses: Sequence[str]  # of all ranks
    port: int  # the first of those that the job listens at
    flows: Sequence[Flow]  # of the job, in the same order on all workers
    channels: int = 1  # connections per flow
    congestion_control: str = "reno"  # congestion control of the TCP part
    mark: int = 0  # SO_MARK of its sockets, which identifies them; 0: none
    seed: bytes = b""  # of its random numbers; empty: the machine's own
    copying: bool = True  # bytes are copied, as a program does, and not only counted
    discards: bool = False  # received bytes are dropped
    bands: Bands | None = None
    mtu: int = 1500
    send_bytes: int = 106_496  # largest send buffer, in bytes: less than the host's queue holds
    in_flight: bool = False  # several messages may be on a connection at a time
    levels: int = 1  # levels of priority; with several, a channel has the data of one level, 0 is the lowest
    counters: int | None = None  # a file in memory: `COUNTERS_BYTES` a channel,
    first_counter: int = 0  # index of the first counter
    patience_s: float = 30.0  # seconds to wait for the other ranks
    paths: Sequence[
        Sequence[str]
    ] = ()  # more addresses of all ranks, one for each path there; empty: there is no choice
    same_host: bool = False  # if ranks share a host, all of the job's connections (or sockets) have different ports
    key: bytes = b""  # 16 bytes that all ends share, with which datagrams are signed; empty: they are not


@dataclass(frozen=True)
class Connection:
    """A flow of a worker, as the kernel identifies it: addresses and ports, from the worker's end."""

    source: int  # rank
    target: int
    channel: int
    saddr: str
    sport: int
    daddr: str
    dport: int
    counter: int | None = None  # index of its counters (`Place.counters`); None: that of its channel

    def back(self) -> Connection:
        """Return the connection in the opposite direction, that of its ACKs."""
        return replace(self, saddr=self.daddr, sport=self.dport, daddr=self.saddr, dport=self.sport)


class Connected(Protocol):
    """A worker with all its connections."""

    def endpoint(self, channel: int, flows: Sequence[Flow]) -> Endpoint:
        """Return the endpoint of a collective with these flows, on one channel."""
        ...

    def connections(self) -> list[Connection]:
        """The connections of the flows that begin here."""
        ...

    def sent(self) -> int:
        """Payload bytes ever handed over on the flows that begin here."""
        ...

    def windows(self) -> list[tuple[int, ...]]:
        """The kernel's congestion state of each flow that begins here; empty if the kernel does not control sending."""
        ...

    def datagrams(self) -> Datagrams | None:
        """Counts of its datagrams; None: the kernel makes and counts the packets."""
        ...


class Listening(Protocol):
    """A worker that can be called."""

    def connect(self) -> Connected:
        """Connect to every peer that this worker calls, and accept the others."""
        ...


class TransportOptions(Protocol):
    """The properties of a transport's options that planning and workers read. A transport's `Options` inherit these defaults and override some."""

    @property
    def bands(self) -> str:
        """Return the priority queues that it needs at every switch, as in ``--priority-queues``: ``4,drop-non-ect``;
        1: none."""
        return "1"

    @property
    def sprays(self) -> bool:
        """Return True if it needs several addresses of each host, and sprays packets over them (`Place.paths`)."""
        return False

    @property
    def hashes(self) -> int:
        """Addresses of each host that it sprays over, by which routers hash; 0: one address for each path."""
        return 0

    @property
    def sync_every(self) -> int:
        """Rounds (iterations), in the last of which parameters arrive complete, again and again; 0: never."""
        return 0

    @property
    def by_tcp(self) -> str | None:
        """The congestion control of parameters, if they travel by TCP (empty: that of the plan); None: they do not."""
        return None


class Module(Protocol):
    """The interface of a transport's file. `testbed.registry.TRANSPORT` checks the names."""

    @property
    def TITLE(self) -> str:
        """Return its name in tables and figures: ``LTP``."""
        ...

    @property
    def DATAGRAMS(self) -> bool:
        """Return True if it sends datagrams with the C core, which can sign them."""
        ...

    @property
    def Options(self) -> type[Any]:
        """A frozen dataclass that inherits `TransportOptions`: what may be written behind its name (`testbed.core.options`)."""
        ...

    def lossy(self, options: Any, /) -> bool:
        """Return True if a message may end with missing ranges."""
        ...

    def listen(self, place: Place, options: Any, /) -> Listening:
        """A worker's ports, bound, before it calls its peers; raises `TransportError` if a port cannot be bound."""
        ...

    def close(self, options: Any, stage: Stage, /) -> Close:
        """Return when the receiver of a message of that stage stops receiving."""
        ...


@dataclass(frozen=True)
class Transport:
    """A transport with its options."""

    name: str
    options: Any  # the `Options` of its module, which are `TransportOptions`

    @property
    def datagrams(self) -> bool:
        return find(self.name).DATAGRAMS

    @property
    def lossy(self) -> bool:
        return find(self.name).lossy(self.options)

    def listen(self, place: Place) -> Listening:
        return find(self.name).listen(place, self.options)

    def close(self, stage: Stage) -> Close:
        return find(self.name).close(self.options, stage)

    def check_tensors(self) -> None:
        """Raises `RequestError` if it does not carry those of a real training (`testbed.transports.torch`)."""
        if not self.datagrams or self.options.by_tcp is not None:
            raise RequestError(
                f"{quoted(self.name)}: PyTorch sends over TCP by itself. Give ltp:broadcast=ltp, mlt, or dlcp"
            )
        if self.close("gradient").missing != "zero":
            raise RequestError(
                f"{quoted(self.name)}: fill: in a real training, missing gradients count as zero. Leave it out"
            )


@cache
def names() -> list[str]:
    """The transports there are."""
    return list(registry.names(registry.TRANSPORT))


def titled(name: str) -> str:
    """A transport's usual spelling: ``LTP``; unknown names stay unchanged."""
    return find(name).TITLE if name in names() else name


def find(name: str) -> Module:
    """The transport ``name``; raises `registry.UnknownContentError`."""
    return cast(Module, registry.find(registry.TRANSPORT, name))


@cache
def parse(text: str) -> Transport:
    """Parse ``name`` or ``name:option=value,…``, once for all callers; raises `registry.UnknownContentError` or `testbed.core.options.OptionError`."""
    name = system_text.name_of(text)
    own = find(name).Options
    if TransportOptions not in own.__mro__:
        raise registry.ContentError(
            f"transport {quoted(name)}: Options do not inherit testbed.transports.TransportOptions."
        )
    return Transport(name, options.parse(own, text))

"""TCP with the job's congestion control: a connection for each flow and channel; all data arrives, in order.

Two options imitate lossy transports on top of TCP: an application that considers a gradient complete early
(``early_close``), and one that sends only a fraction of it (``send_fraction``).
"""

from __future__ import annotations

import contextlib
import fcntl
import itertools
import math
import mmap
import os
import select
import socket
import struct
import termios
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache

from testbed.core import layouts
from testbed.core.options import Boolean, Fraction, option
from testbed.transports import (
    Bands,
    Buffer,
    Close,
    Connection,
    Counters,
    Delivery,
    Flow,
    Message,
    Place,
    Stage,
    Tagger,
    Transfer,
    TransportOptions,
)
from testbed.transports.framed import FramedEndpoint, exactly

CLASS_SELECTOR = 5  # its shift in the second byte of an IP header
TCP_CONGESTION, SO_MARK, TCP_NOTSENT_LOWAT = 13, 36, 25
ACKED = layouts.TCP_INFO.reader("tcpi_bytes_acked")
WINDOW = layouts.TCP_INFO.reader("tcpi_rtt", "tcpi_rttvar", "tcpi_snd_ssthresh", "tcpi_snd_cwnd")
STATE = layouts.TCP_INFO.reader("tcpi_rtt", "tcpi_snd_cwnd", "tcpi_total_retrans", "tcpi_bytes_acked")
FROM_PORT = (
    30_000  # above the port listened at: connections begin at fixed ports, too, since paths are hashed from them
)
# A receiver is woken for this much at a time, not for every packet.
WAKE = 256 << 10
# One system call moves at most this much: each has its price under virtual time.
PIECE = 64 << 20
COPIED = 1 << 20
_ZEROS = memoryview(bytes(COPIED))
# A gradient that may be closed early is sent in pieces, each after its length; between two pieces its sender checks for that.
CLOSED_BY = 64 << 10
LENGTH = struct.Struct("!I")
LEAST_SHARE = 0.01
AGAIN_S = 0.1
LEAVES_S = 5.0  # seconds for data in transit, which is discarded


@dataclass(frozen=True)
class Options(TransportOptions):
    """The options of ``tcp:``, or of a congestion control: ``reno:early_close=0.8``."""

    early_close: float = option(
        1.0,
        "fraction of a gradient after which the receiver stops the sender; default 1",
        Fraction(LEAST_SHARE),
        alias="close",
    )
    send_fraction: float = option(
        1.0, "fraction of a gradient that is sent; default 1", Fraction(LEAST_SHARE), alias="share"
    )
    spray: bool = option(
        False,
        "packet spraying by the routers: on or off (default)",
        Boolean(),
    )

    def arrives(self, m: Message) -> int:
        """Return how many of the first bytes of the message count as delivered."""
        return _share(m, min(self.early_close, self.send_fraction))

    def sends(self, m: Message) -> int:
        """The number of its bytes that are sent if the receiver does not stop it."""
        return _share(m, self.send_fraction)

    def closes(self, m: Message) -> bool:
        return self.arrives(m) < self.sends(m)

    def ended(self, m: Message) -> Delivery:
        """Return the delivery of the message, the same at both ends."""
        arrives = self.arrives(m)
        if arrives == m.bytes:
            return Delivery(m.bytes, m.bytes, "complete")
        return Delivery(m.bytes, arrives, "fraction", ((arrives, m.bytes - arrives),))


def _share(m: Message, share: float) -> int:
    """Return the bytes of at least ``share`` of a gradient, in whole elements; all bytes of other messages."""
    if m.stage != "gradient":
        return m.bytes
    return min(m.bytes, math.ceil(round(m.bytes * share / m.element, 6)) * m.element)


TITLE = "TCP"
DATAGRAMS = False


def lossy(options: Options) -> bool:
    """Return True if a gradient may end without all of its bytes."""
    return min(options.early_close, options.send_fraction) < 1


def close(options: Options, stage: Stage) -> Close:
    """Return the limit: all data arrives, except what the application drops."""
    return Close(fraction=min(options.early_close, options.send_fraction) if stage == "gradient" else 1.0)


class Listening:
    """A socket listens for each connection that ends here, so that the port identifies it."""

    def __init__(self, place: Place, options: Options) -> None:
        self.place, self.options = place, options
        self.listeners: dict[tuple[Flow, int], socket.socket] = {}
        for connection, port in _ports(place, place.rank).items():
            listener = self.listeners[connection] = _socket(place)
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind((place.addresses[place.rank], port))
            listener.listen(1)
            listener.settimeout(place.patience_s)

    def connect(self) -> Connected:
        """Connect every flow that begins here, accept every one that ends here."""
        place = self.place
        channels: list[dict[Flow, socket.socket]] = [{} for _ in range(place.channels)]
        ports = itertools.count(place.port + FROM_PORT)
        for connection in _flow_channels(place):
            flow, channel = connection
            if place.same_host and flow[0] != place.rank:
                next(ports)
            if flow[0] == place.rank:
                sock = channels[channel][flow] = _socket(place)
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                sock.bind((place.addresses[place.rank], next(ports)))
                sock.settimeout(place.patience_s)
                _call(sock, (place.addresses[flow[1]], _ports(place, flow[1])[connection]), place.patience_s)
        for (flow, channel), listener in self.listeners.items():
            sock, _ = listener.accept()
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if place.bands:  # connections that end here answer with ACKs, which must not be delayed
                place.bands.raise_to_top(sock)
            channels[channel][flow] = sock
        for links in channels:
            for sock in links.values():
                sock.settimeout(None)
        for listener in self.listeners.values():
            listener.close()
        if place.levels > 1:
            for level, links in enumerate(channels):
                for sock in links.values():
                    sock.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, level << CLASS_SELECTOR)
        framed = [_framed(place, links, self.options) for links in channels] if place.in_flight else []
        return Connected(place, channels, self.options, framed)


def listen(place: Place, options: Options) -> Listening:
    return Listening(place, options)


@dataclass
class _GivenUp:
    """The further duties of connections where messages are closed early."""

    offered: int = 0  # bytes of messages that were handed over
    rests: dict[socket.socket, threading.Thread] = field(default_factory=dict)  # threads that discard data in transit


@dataclass(frozen=True)
class Connected:
    """All connections of a worker, by channel and flow."""

    place: Place
    channels: list[dict[Flow, socket.socket]]
    options: Options = Options()
    framed: list[FramedEndpoint] = field(
        default_factory=list
    )  # of each channel, where several messages are on it at a time
    given_up: _GivenUp = field(default_factory=_GivenUp)

    def endpoint(self, channel: int, flows: Sequence[Flow]) -> TcpEndpoint | FramedEndpoint:
        if self.framed:
            return self.framed[channel]
        links = {flow: sock for flow, sock in self.channels[channel].items() if flow in flows}
        place = self.place
        return TcpEndpoint(
            place.rank, links, copying=place.copying, bands=place.bands, options=self.options, given_up=self.given_up
        )

    def connections(self) -> list[Connection]:
        return [_connection(flow, channel, sock) for channel, flow, sock in self._outgoing()]

    def sent(self) -> int:
        """Return the bytes that the kernel counts; if not all data is sent, those handed over."""
        if lossy(self.options):
            return self.given_up.offered + sum(each.offered for each in self.framed)
        return sum(_written(sock) for _, _, sock in self._outgoing())

    def windows(self) -> list[tuple[int, ...]]:
        infos = (sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, WINDOW.size) for _, _, sock in self._outgoing())
        return [WINDOW.unpack(each) for each in infos]

    def datagrams(self) -> None:
        """Return None: the kernel makes the packets."""

    def _outgoing(self) -> list[tuple[int, Flow, socket.socket]]:
        return [
            (channel, flow, sock)
            for channel, links in enumerate(self.channels)
            for flow, sock in links.items()
            if flow[0] == self.place.rank
        ]


class TcpEndpoint:
    """Endpoint of one channel. The waiting thread moves a transfer; to wait for two at once takes two threads."""

    def __init__(
        self, rank: int, links: Mapping[Flow, socket.socket], *, copying: bool = True, bands: Bands | None = None,
        options: Options = Options(), given_up: _GivenUp | None = None,
    ) -> None:  # fmt: skip
        self.rank, self.links, self.copying, self.bands = rank, links, copying, bands
        self.options, self.given_up = options, given_up or _GivenUp()

    def post_send(self, to: int, m: Message, data: Buffer | None, tag: Tagger | None = None) -> Transfer:
        """``tag`` is for packets, which TCP makes itself."""
        del tag
        link = self._link(self.rank, to)
        if (self.rank, to) in self.links:
            self.given_up.offered += m.bytes
        size = self.options.sends(m)

        def give(at: int, count: int) -> None:
            if data is not None:
                link.sendall(memoryview(data).cast("B")[at : at + count])
            else:
                _send(link, count, copying=self.copying, bands=self.bands)

        if self.options.closes(m):
            return _Transfer(self.options.ended(m), lambda: _send_until_closed(link, size, give))
        return _Transfer(self.options.ended(m), lambda: give(0, size))

    def post_receive(self, source: int, m: Message, into: Buffer | None, close: Close) -> Transfer:
        """``close`` is met: everything arrives, except for bytes that the options omit."""
        link = self._link(source, self.rank)
        enough, size = self.options.arrives(m), self.options.sends(m)
        memory = None if into is None else memoryview(into).cast("B")

        def take(at: int, count: int) -> None:
            if memory is not None and at + count <= enough:
                _fill(link, memory[at : at + count])
            else:
                _receive(link, count)

        def receive() -> None:
            if self.options.closes(m):
                _receive_until_enough(link, enough, size, take, self.given_up.rests)
            else:
                take(0, size)
            if memory is not None and close.missing == "zero":
                memory[enough:] = bytes(m.bytes - enough)

        return _Transfer(self.options.ended(m), receive)

    def counters(self, peer: int) -> Counters:
        info = self._link(self.rank, peer).getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, layouts.TCP_INFO_BYTES)
        rtt_us, window, resent, acked = STATE.unpack_from(info)
        return Counters(window_packets=window, rtt_us=rtt_us, acked_bytes=acked, resent_packets=resent)

    def end(self, reason: str, gone: int | None = None) -> None:
        """The peers see their connections closed; TCP carries no ``reason``."""
        del reason, gone
        for link in self.links.values():
            if rest := self.given_up.rests.pop(link, None):
                rest.join(LEAVES_S)  # otherwise its sender would see a failure
            link.close()

    def _link(self, source: int, target: int) -> socket.socket:
        """Return the connection of that flow; an answer without a separate connection uses that of the request."""
        return self.links.get((source, target)) or self.links[target, source]


class _Transfer:
    """Moved by the first thread that waits.

    That takes no lock: under virtual time each would cost a nanosecond, since Python reads the clock to take one.
    """

    def __init__(self, delivery: Delivery, move: Callable[[], None]) -> None:
        """``move`` brings it to ``delivery``."""
        self._moves = [move]  # possible moves; one of them is made, once
        self._delivery = delivery
        self._error: BaseException | None = None
        self._ended = False
        self._waiting: list[threading.Event] = []

    def wait(self, timeout_s: float | None = None) -> Delivery:
        if timeout_s is None:
            self._carry()
        elif self._moves:
            threading.Thread(target=self._carry, daemon=True).start()
        if not self._ended:  # another thread moves it
            ended = threading.Event()
            self._waiting.append(ended)
            if not self._ended and not ended.wait(timeout_s):
                raise TimeoutError(f"{self._delivery.bytes} bytes were not moved within {timeout_s:g} s")
        if self._error:
            raise self._error
        return self._delivery

    def done(self) -> bool:
        return self._ended

    def on_done(self, callback: Callable[[Transfer], None]) -> None:
        def follow() -> None:
            with contextlib.suppress(Exception):  # `wait` raises it again
                self.wait()
            callback(self)

        threading.Thread(target=follow, daemon=True).start()

    def _carry(self) -> None:
        try:
            move = self._moves.pop()
        except IndexError:
            return
        try:
            move()
        except BaseException as error:
            self._error = error
        self._ended = True
        for one in self._waiting:
            one.set()


def _framed(place: Place, links: dict[Flow, socket.socket], options: Options) -> FramedEndpoint:
    plain = TcpEndpoint(place.rank, links)
    return FramedEndpoint(
        place.rank,
        links,
        lambda link, size: _send(link, size, copying=place.copying, bands=None),
        _receive,
        plain.counters,
        options.ended,
    )


def _socket(place: Place) -> socket.socket:
    """A TCP socket that uses the job's congestion control; read back, since a child
    namespace may silently offer another."""
    sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    name = place.congestion_control.encode()
    sock.setsockopt(socket.IPPROTO_TCP, TCP_CONGESTION, name)
    found = sock.getsockopt(socket.IPPROTO_TCP, TCP_CONGESTION, 16).split(b"\0")[0]
    if found != name:
        raise SystemExit(f"asked for congestion control {name!r}, the kernel took {found!r}")
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    if place.mark:
        sock.setsockopt(socket.SOL_SOCKET, SO_MARK, place.mark)
        if (marked := sock.getsockopt(socket.SOL_SOCKET, SO_MARK)) != place.mark:
            raise SystemExit(f"asked for the mark {place.mark}, the kernel took {marked}")
    return sock


def _call(sock: socket.socket, whom: tuple[str, int], patience_s: float) -> None:
    """Connect, with retries until the peer listens."""
    until = time.monotonic() + patience_s
    while True:
        try:
            return sock.connect(whom)
        except (ConnectionRefusedError, ConnectionAbortedError):  # the latter: Linux's second form of the former
            if time.monotonic() > until:
                raise
            time.sleep(AGAIN_S)


def _flow_channels(place: Place) -> list[tuple[Flow, int]]:
    """Return every flow of the job on every channel."""
    return [(flow, channel) for channel in range(place.channels) for flow in place.flows]


def _ports(place: Place, rank: int) -> dict[tuple[Flow, int], int]:
    """The ports on which ``rank`` listens: a port for each connection that ends there, so that the port identifies it."""
    numbered = (
        enumerate(_flow_channels(place))
        if place.same_host
        else enumerate(one for one in _flow_channels(place) if one[0][1] == rank)
    )
    return {one: place.port + number for number, one in numbered if one[0][1] == rank}


def _connection(flow: Flow, channel: int, sock: socket.socket) -> Connection:
    (saddr, sport), (daddr, dport) = sock.getsockname(), sock.getpeername()
    return Connection(*flow, channel, saddr, sport, daddr, dport)


def _written(sock: socket.socket) -> int:
    """Bytes ever written to a connection, as the kernel counts them: acknowledged and waiting."""
    while True:
        acked = _acked(sock)
        waiting = struct.unpack("i", fcntl.ioctl(sock, termios.TIOCOUTQ, b"\0" * 4))[0]
        if acked == _acked(sock):  # no ACK came in between
            return int(acked + waiting)


def _acked(sock: socket.socket) -> int:
    info = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, layouts.TCP_INFO_BYTES)
    return int(ACKED.unpack_from(info)[0])


@cache
def _hole() -> int:
    """A sparse file without data: its pages are sent without being copied or stored."""
    hole = os.memfd_create("zeros")
    os.ftruncate(hole, PIECE)
    return hole


@cache
def _sink() -> mmap.mmap:
    """Memory that received bytes would be written to; never written, so never allocated."""
    return mmap.mmap(-1, PIECE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)


def _send(link: socket.socket, size: int, *, copying: bool, bands: Bands | None) -> None:
    """Send ``size`` bytes without content; ``link`` blocks.

    Under virtual time, data is not copied. On a real clock, copying keeps a sender from filling its buffer in one
    burst, which would cost timeouts.
    """
    while size > 0:
        piece = min(size, COPIED if copying else PIECE)
        if bands:
            piece = bands.claim(link, piece)
        sent = link.send(_ZEROS[:piece]) if copying else os.sendfile(link.fileno(), _hole(), 0, piece)
        if bands:
            bands.give_back(piece - sent)
        size -= sent


def _receive(link: socket.socket, size: int) -> None:
    """Receive exactly ``size`` bytes and discard them.

    ``SO_RCVLOWAT`` makes the kernel wake the thread once that many bytes are available, instead of at every packet;
    ``MSG_TRUNC`` discards the bytes without a copy (tcp(7)). A call that waits for all its bytes (``MSG_WAITALL``) does
    not count the bytes that it has taken already towards the mark. So it requests only bytes that are certain to be
    followed by as many as the mark, and `poll` waits for the rest. `poll` also ends before the mark if a window has
    closed: the available bytes are taken, and the mark is set again. Waiting for the rest in the kernel would never
    end.
    """
    link.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, min(size, WAKE))
    while size > WAKE:
        size -= _take(link, min(size - WAKE, PIECE), socket.MSG_WAITALL)
    poll = select.poll()
    poll.register(link, select.POLLIN)
    while size > 0:
        link.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, size)
        poll.poll()
        size -= _take(link, size, socket.MSG_DONTWAIT)


def _take(link: socket.socket, size: int, flags: int) -> int:
    got = link.recv_into(_sink(), size, socket.MSG_TRUNC | flags)
    if got == 0:
        raise ConnectionResetError("the peer closed the connection")
    return got


def _fill(link: socket.socket, into: memoryview) -> None:
    # A wait for fewer bytes than the remaining mark would never end.
    link.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, 1)
    while into:
        got = link.recv_into(into, len(into), socket.MSG_WAITALL)
        if got == 0:
            raise ConnectionResetError("the peer closed the connection")
        into = into[got:]


def _send_until_closed(link: socket.socket, size: int, give: Callable[[int, int], None]) -> None:
    """Send ``size`` bytes, or until the receiver has enough; then a length of 0 marks the end."""
    link.setsockopt(socket.IPPROTO_TCP, TCP_NOTSENT_LOWAT, CLOSED_BY)  # data in the socket cannot be withdrawn
    poll = select.poll()
    poll.register(link, select.POLLIN | select.POLLOUT)
    at = 0
    while at < size:
        events = poll.poll()[0][1]
        if events & select.POLLIN:
            break
        piece = min(size - at, CLOSED_BY)
        link.sendall(LENGTH.pack(piece))
        give(at, piece)
        at += piece
    if at < size:
        link.sendall(LENGTH.pack(0))
    exactly(link, 1)


def _receive_until_enough(
    link: socket.socket, enough: int, size: int, take: Callable[[int, int], None],
    rests: dict[socket.socket, threading.Thread],
) -> None:  # fmt: skip
    """Receive ``enough`` of ``size`` bytes and notify the sender; a second thread drops the rest."""
    if rest := rests.pop(link, None):
        rest.join()
    at = left = 0  # of the message; of the piece
    while at < enough:
        if not left:
            left = _length(link)
        now = min(left, enough - at)
        take(at, now)
        at, left = at + now, left - now
    link.sendall(b"\0")
    if at < size:
        rests[link] = threading.Thread(target=_drop, args=(link, left, size - at), daemon=True)
        rests[link].start()


def _drop(link: socket.socket, piece: int, size: int) -> None:
    """The rest of a message: ``piece`` bytes, then pieces, until it is complete or its sender has stopped."""
    with contextlib.suppress(OSError):  # the next call on this connection sees the error
        while size and (piece := piece or _length(link)):
            _receive(link, piece)
            size, piece = size - piece, 0


def _length(link: socket.socket) -> int:
    return int(LENGTH.unpack(exactly(link, LENGTH.size))[0])

"""Send several concurrent messages over one TCP connection, each with a header, and acknowledged when complete.

For replays, whose bytes have no content. A sender is notified when the receiver has a message: credit in bytes counts
these messages (BytePS; Peng et al., SOSP 2019).
"""

from __future__ import annotations

import queue
import select
import socket
import struct
import threading
from collections.abc import Callable, Mapping

from testbed.transports import Buffer, Close, Counters, Delivery, Flow, Message, Tagger, Transfer, TransportError

HEADER = struct.Struct("!IIIQ")  # round, operation, part; bytes that follow
Key = tuple[int, int, int]
Send = Callable[[socket.socket, int], None]
Receive = Callable[[socket.socket, int], None]


class _Transfer:
    """A message in transfer, which another thread ends."""

    def __init__(self) -> None:
        self.delivery = Delivery(0, 0, "complete")  # set by the poster
        self._lock = threading.Lock()
        self._ended = threading.Event()
        self._error: BaseException | None = None
        self._callbacks: list[Callable[[Transfer], None]] = []

    def wait(self, timeout_s: float | None = None) -> Delivery:
        if not self._ended.wait(timeout_s):
            raise TimeoutError(f"{self.delivery.bytes} bytes were not moved within {timeout_s:g} s")
        if self._error:
            raise self._error
        return self.delivery

    def done(self) -> bool:
        return self._ended.is_set()

    def on_done(self, callback: Callable[[Transfer], None]) -> None:
        with self._lock:
            if not self._ended.is_set():
                self._callbacks.append(callback)
                return
        callback(self)

    def end(self, error: BaseException | None = None) -> None:
        with self._lock:
            self._error = error
            self._ended.set()
        for callback in self._callbacks:
            callback(self)


class FramedEndpoint:
    """All connections of one worker and channel; thread-safe.

    Three threads serve each peer: one sends its messages in the order of posting, one receives acknowledgements, one
    receives the peer's data, posted or not.
    """

    def __init__(
        self, rank: int, links: Mapping[Flow, socket.socket], send: Send, receive: Receive, counted: Callable[[int], Counters],
        delivered: Callable[[Message], Delivery],
    ) -> None:  # fmt: skip
        """``send``, ``receive``: so many bytes without content; ``counted``: the kernel's counters of the path to a peer;
        ``delivered``: the part of a message that is sent, and so arrives."""
        self.rank, self.links, self.counters = rank, links, counted
        self._send, self._receive, self._delivered = send, receive, delivered
        self.offered = 0  # bytes of messages that were handed over
        self._lock = threading.Lock()
        self._sending: dict[tuple[int, Key], _Transfer] = {}
        self._receiving: dict[tuple[int, Key], _Transfer] = {}
        self._posted: dict[int, queue.SimpleQueue[tuple[Key, int]]] = {}
        for flow, link in links.items():
            if flow[0] == rank:
                posted = self._posted[flow[1]] = queue.SimpleQueue()
                self._run(self._pass_on, link, posted)
                self._run(self._hear, link, flow[1])
            else:
                self._run(self._take, link, flow[0])

    def post_send(self, to: int, m: Message, data: Buffer | None, tag: Tagger | None = None) -> Transfer:
        """``data`` is None; ``tag`` is for packets, which TCP makes itself."""
        if data is not None:
            raise ValueError("several messages at a time carry bytes that nobody looks at")
        del tag
        key = m.round, m.operation, m.part
        transfer = _Transfer()
        transfer.delivery = self._delivered(m)
        with self._lock:
            self.offered += m.bytes
            self._sending[to, key] = transfer
        self._posted[to].put((key, transfer.delivery.delivered))
        return transfer

    def post_receive(self, source: int, m: Message, into: Buffer | None, close: Close) -> Transfer:
        """Start to receive. ``into`` must be None, else raises `ValueError`; ``close`` always holds, because sent data
        arrives."""
        if into is not None:
            raise ValueError("several messages at a time carry bytes that nobody looks at")
        del close
        transfer = self._received(source, (m.round, m.operation, m.part))
        transfer.delivery = self._delivered(m)
        return transfer

    def end(self, reason: str, gone: int | None = None) -> None:
        for link in self.links.values():
            link.close()
        self._fail(TransportError(reason, gone=gone))

    def _run(self, what: Callable[..., None], *arguments: object) -> None:
        def carry_out() -> None:
            try:
                what(*arguments)
            except (OSError, struct.error) as error:
                self._fail(error)

        threading.Thread(target=carry_out, daemon=True).start()

    def _fail(self, error: BaseException) -> None:
        with self._lock:
            left = [*self._sending.values(), *self._receiving.values()]
            self._sending.clear()
            self._receiving.clear()
        for transfer in left:
            if not transfer.done():
                transfer.end(error)

    def _pass_on(self, link: socket.socket, posted: queue.SimpleQueue[tuple[Key, int]]) -> None:
        while True:
            key, size = posted.get()
            link.sendall(HEADER.pack(*key, size))
            self._send(link, size)

    def _hear(self, link: socket.socket, peer: int) -> None:
        while True:
            key, _ = _header(link)
            with self._lock:
                transfer = self._sending.pop((peer, key))
            transfer.end()

    def _take(self, link: socket.socket, peer: int) -> None:
        while True:
            key, size = _header(link)
            self._receive(link, size)
            self._received(peer, key).end()
            link.sendall(HEADER.pack(*key, size))

    def _received(self, source: int, key: Key) -> _Transfer:
        """The transfer of the end that came first, if any: the second end removes it."""
        with self._lock:
            transfer = self._receiving.pop((source, key), None)
            if transfer is None:
                transfer = self._receiving[source, key] = _Transfer()
            return transfer


def _header(link: socket.socket) -> tuple[Key, int]:
    round_, operation, part, size = HEADER.unpack(exactly(link, HEADER.size))
    return (round_, operation, part), size


def exactly(link: socket.socket, size: int) -> bytes:
    """Receive exactly ``size`` bytes of a connection, as they arrive.

    ``MSG_WAITALL`` would take the first bytes and then sleep for ever if the rest is below the low-water mark.
    """
    poll = select.poll()
    poll.register(link, select.POLLIN)
    got = b""
    while len(got) < size:
        link.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, size - len(got))
        poll.poll()
        piece = link.recv(size - len(got), socket.MSG_DONTWAIT)
        if not piece:
            raise ConnectionResetError("the peer closed the connection")
        got += piece
    return got

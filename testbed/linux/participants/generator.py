"""A process that sends background traffic: the flows of one source (`testbed.core.runs.plan.Background`), between hosts of the network.

It holds both ends of every flow, each in the namespace of its host, so that one clock times a flow. A flow starts at its
arrival, before the handshake. It ends with the last byte at the target, or the last byte of the response at the source.
Every flow uses a separate connection.

It replies in lines of JSON: ``{"listening": true}``; after ``{"stop": true}`` its flows, as lists, and ``{"done": N}``.
"""

from __future__ import annotations

import json
import os
import resource
import selectors
import socket
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import msgspec

from testbed.core.clock import Alarm, sleep_until
from testbed.core.runs.plan import Background
from testbed.linux import netns
from testbed.replay.bands import mark
from testbed.traffic.arrivals import Arrival, arrivals, band

PORT = 9000
CHUNK = 1 << 18
MOST_FILES = 4000  # concurrent sockets
ROWS = 500  # per line
WAKE = 1 << 16  # bytes that accumulate before the target reads them, except at the end of a flow
GONE = (ConnectionError, TimeoutError)


@dataclass
class Flow:
    """One that has begun; ``row`` is what becomes of it."""

    arrival: Arrival
    source: socket.socket
    target: socket.socket | None = None
    to_send: int | None = 0  # None: without end
    to_receive: int | None = 0
    answered: int = 0  # bytes of the response sent
    heard: int = 0  # bytes of the response received
    received: int = 0
    end_ns: int | None = None
    failure: str = ""
    done: bool = False


@dataclass
class Generator:
    """All flows of one source."""

    plan: Background
    congestion_control: str
    addresses: dict[str, str]
    namespaces: dict[str, int]
    port: int
    listening: dict[str, socket.socket] = field(default_factory=dict)
    flows: list[Flow] = field(default_factory=list)
    by_address: dict[tuple[str, int], Flow] = field(default_factory=dict)
    start_ns: int = 0
    following: Arrival | None = None
    coming: Iterator[Arrival] = field(default_factory=lambda: iter(()))

    def __post_init__(self) -> None:
        self.alarm = Alarm()
        self.selector = selectors.DefaultSelector()
        self.zeros, self.scratch = memoryview(bytes(CHUNK)), bytearray(CHUNK)
        for host in dict.fromkeys(self.plan.targets):
            with netns.entered(self.namespaces[host]):
                listener = socket.socket()
            self._prepare(listener)
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind((self.addresses[host], self.port))
            listener.listen(1024)
            self.listening[host] = listener
            self.selector.register(listener, selectors.EVENT_READ, None)

    def _prepare(self, sock: socket.socket) -> None:
        """Its congestion control, read back."""
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, self.congestion_control.encode())
        found = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, 16).split(b"\0")[0].decode()
        if found != self.congestion_control:
            raise OSError(f"a socket uses {found}, not {self.congestion_control}")

    def run(self, commands: int, start_ns: int) -> None:
        """Until a line comes on ``commands``."""
        self.start_ns = start_ns
        self.selector.register(commands, selectors.EVENT_READ, "stop")
        self.selector.register(self.alarm, selectors.EVENT_READ, "alarm")
        self.coming = arrivals(self.plan)
        self._follow()
        while True:
            for key, _ in self.selector.select():
                if key.data == "stop":
                    return
                if key.data == "alarm":
                    self.alarm.clear()
                    self._due()
                elif key.data is None:
                    self._accept(key.fileobj)
                elif not key.data[0].done:
                    self._go_on(*key.data)

    def _follow(self) -> None:
        """Take the next arrival, and wait for it, or for the end."""
        self.following = next(self.coming, None)
        at_ns = self.plan.stop_ns if self.following is None else self.following.at_ns
        if at_ns is not None:
            self.alarm.set(self.start_ns + at_ns)

    def _due(self) -> None:
        if self.following is None:
            for flow in self.flows:
                if flow.to_send is None and not flow.done:
                    self._end(flow, time.monotonic_ns())
            return
        while self.following is not None and self.start_ns + self.following.at_ns <= time.monotonic_ns():
            self._begin(self.following)
            self._follow()

    def _begin(self, arrival: Arrival) -> None:
        if len(self.selector.get_map()) > MOST_FILES:
            sys.exit(
                f"over {MOST_FILES // 2} flows are open at once: the network carries less than is offered. Lower load, rate or bytes."
            )
        with netns.entered(self.namespaces[arrival.source]):
            sock = socket.socket()
        self._prepare(sock)
        if priority := band(self.plan.priority, arrival.bytes):
            mark(sock, priority)
        flow = Flow(arrival, sock, to_send=arrival.bytes, to_receive=arrival.bytes)
        self.flows.append(flow)
        try:
            sock.bind((self.addresses[arrival.source], 0))
            self.by_address[sock.getsockname()] = flow
            code = sock.connect_ex((self.addresses[arrival.target], self.port))
            if code not in (0, 115):  # EINPROGRESS
                raise OSError(code, os.strerror(code))
        except OSError as error:
            self._end(flow, None, str(error))
            return
        self.selector.register(sock, selectors.EVENT_WRITE, (flow, "send"))

    def _accept(self, listener: Any) -> None:
        try:
            sock, address = listener.accept()
        except (BlockingIOError, *GONE):
            return
        sock.setblocking(False)
        flow = self.by_address.pop(address, None)
        if flow is None or flow.done:
            sock.close()
            return
        flow.target = sock
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, min(WAKE, flow.to_receive or WAKE))
        if priority := band(self.plan.priority, flow.arrival.bytes):
            mark(sock, priority)
        self.selector.register(sock, selectors.EVENT_READ, (flow, "receive"))

    def _go_on(self, flow: Flow, what: str) -> None:
        try:
            getattr(self, f"_{what}")(flow)
        except BlockingIOError:
            return
        except OSError as error:
            self._end(flow, None, str(error))

    def _send(self, flow: Flow) -> None:
        size = CHUNK if flow.to_send is None else min(CHUNK, flow.to_send)
        sent = flow.source.send(self.zeros[:size])
        if flow.to_send is not None:
            flow.to_send -= sent
            if not flow.to_send:
                if self.plan.response_bytes is None:
                    self.selector.unregister(flow.source)
                else:
                    self.selector.modify(flow.source, selectors.EVENT_READ, (flow, "hear"))

    def _receive(self, flow: Flow) -> None:
        assert flow.target is not None
        got = flow.target.recv_into(self.scratch)
        if not got:
            raise ConnectionError("the source closed it")
        flow.received += got
        if flow.to_receive is None or flow.received < flow.to_receive:
            if flow.to_receive is not None and flow.to_receive - flow.received < WAKE:
                flow.target.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, flow.to_receive - flow.received)
            return
        if self.plan.response_bytes is None:
            self._end(flow, time.monotonic_ns())
        else:
            self.selector.modify(flow.target, selectors.EVENT_WRITE, (flow, "answer"))

    def _answer(self, flow: Flow) -> None:
        assert flow.target is not None and self.plan.response_bytes is not None
        flow.answered += flow.target.send(self.zeros[: min(CHUNK, self.plan.response_bytes - flow.answered)])
        if flow.answered == self.plan.response_bytes:
            self.selector.unregister(flow.target)

    def _hear(self, flow: Flow) -> None:
        got = flow.source.recv_into(self.scratch)
        if not got:
            raise ConnectionError("the target closed it")
        flow.heard += got
        if flow.heard == self.plan.response_bytes:
            self._end(flow, time.monotonic_ns())

    def _end(self, flow: Flow, at_ns: int | None, failure: str = "") -> None:
        flow.end_ns, flow.failure, flow.done = at_ns, failure, True
        for sock in filter(None, (flow.source, flow.target)):
            if sock.fileno() in self.selector.get_map():
                self.selector.unregister(sock)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")  # no TIME_WAIT: ports are few
            sock.close()

    def rows(self) -> Iterator[list[Any]]:
        """Of each flow: source, target, size, burst, start, end (None: not ended), bytes received, failure."""
        for flow in self.flows:
            end = None if flow.end_ns is None else flow.end_ns - self.start_ns
            one = flow.arrival
            yield [one.source, one.target, one.bytes, one.burst, one.at_ns, end, flow.received, flow.failure]


def main() -> None:
    resource.setrlimit(resource.RLIMIT_NOFILE, (MOST_FILES + 100,) * 2)
    asked = _line()
    plan = msgspec.convert(asked["plan"], Background)
    generator = Generator(plan, asked["congestion_control"], asked["addresses"], asked["namespaces"], asked["port"])
    _tell({"listening": True})
    begin = _line()
    sleep_until(begin["wait_from_ns"])
    sleep_until(begin["start_ns"])
    generator.run(0, begin["start_ns"])
    found = list(generator.rows())
    for first in range(0, len(found), ROWS):
        _tell(found[first : first + ROWS])
    _tell({"done": len(found)})


def _line() -> Any:
    line = sys.stdin.readline()
    if not line:
        sys.exit(0)
    return json.loads(line)


def _tell(message: Any) -> None:
    sys.stdout.buffer.write(json.dumps(message).encode() + b"\n")
    sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()

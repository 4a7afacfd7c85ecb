"""A process that sends background traffic: the flows of one source (`testbed.core.runs.plan.Background`), between hosts of the network.

It holds both ends of every flow, each in the namespace of its host, so that one clock times a flow. A flow starts at its
arrival, before the handshake. It ends with the last byte at the target, or the last byte of the response at the source.
Every flow uses a separate connection.

It replies in lines of JSON: ``{"listening": true}``; after ``{"stop": true}`` its flows, as lists, and ``{"done": N}``.
"""

from __future__ import annotations

import errno
import json
import os
import resource
import selectors
import socket
import sys
import time
from collections.abc import Callable, Iterator
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


@dataclass
class Flow:
    """A flow from its arrival on."""

    arrival: Arrival
    source: socket.socket
    target: socket.socket | None = None
    left: int | None = 0  # bytes that the source has not sent; None: without end
    received: int = 0  # bytes at the target
    response_sent: int = 0
    response_received: int = 0
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
    flows: list[Flow] = field(default_factory=list)
    by_address: dict[tuple[str, int], Flow] = field(default_factory=dict)
    start_ns: int = 0
    arrivals: Iterator[Arrival] = field(default_factory=lambda: iter(()))
    next_arrival: Arrival | None = None

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
            self.selector.register(listener, selectors.EVENT_READ, None)

    def _prepare(self, sock: socket.socket) -> None:
        """Make it non-blocking and set its congestion control, which is read back."""
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
        self.arrivals = arrivals(self.plan)
        self._schedule_next()
        while True:
            for key, _ in self.selector.select():
                if key.data == "stop":
                    return
                if key.data == "alarm":
                    self.alarm.clear()
                    self._begin_due()
                elif key.data is None:
                    self._accept(key.fileobj)
                elif not key.data[0].done:
                    self._transfer(*key.data)

    def _schedule_next(self) -> None:
        """Set the alarm for the next arrival, or after the last one for the end."""
        self.next_arrival = next(self.arrivals, None)
        at_ns = self.plan.stop_ns if self.next_arrival is None else self.next_arrival.at_ns
        if at_ns is not None:
            self.alarm.set(self.start_ns + at_ns)

    def _begin_due(self) -> None:
        """Begin the flows that are due; at the end, end those without end."""
        if self.next_arrival is None:
            for flow in self.flows:
                if flow.left is None and not flow.done:
                    self._end(flow, time.monotonic_ns())
            return
        while self.next_arrival is not None and self.start_ns + self.next_arrival.at_ns <= time.monotonic_ns():
            self._begin(self.next_arrival)
            self._schedule_next()

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
        flow = Flow(arrival, sock, left=arrival.bytes)
        self.flows.append(flow)
        try:
            sock.bind((self.addresses[arrival.source], 0))
            self.by_address[sock.getsockname()] = flow
            code = sock.connect_ex((self.addresses[arrival.target], self.port))
            if code not in (0, errno.EINPROGRESS):
                raise OSError(code, os.strerror(code))
        except OSError as error:
            self._end(flow, None, str(error))
            return
        self.selector.register(sock, selectors.EVENT_WRITE, (flow, self._send))

    def _accept(self, listener: Any) -> None:
        try:
            sock, address = listener.accept()
        except OSError:  # the source has closed it
            return
        sock.setblocking(False)
        flow = self.by_address.pop(address, None)
        if flow is None or flow.done:
            sock.close()
            return
        flow.target = sock
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, min(WAKE, flow.arrival.bytes or WAKE))
        if priority := band(self.plan.priority, flow.arrival.bytes):
            mark(sock, priority)
        self.selector.register(sock, selectors.EVENT_READ, (flow, self._receive))

    def _transfer(self, flow: Flow, step: Callable[[Flow], None]) -> None:
        try:
            step(flow)
        except BlockingIOError:
            return
        except OSError as error:
            self._end(flow, None, str(error))

    def _send(self, flow: Flow) -> None:
        sent = flow.source.send(self.zeros[: CHUNK if flow.left is None else min(CHUNK, flow.left)])
        if flow.left is None:
            return
        flow.left -= sent
        if not flow.left:
            if self.plan.response_bytes is None:
                self.selector.unregister(flow.source)
            else:
                self.selector.modify(flow.source, selectors.EVENT_READ, (flow, self._receive_response))

    def _receive(self, flow: Flow) -> None:
        assert flow.target is not None
        got = flow.target.recv_into(self.scratch)
        if not got:
            raise ConnectionError("the source closed it")
        flow.received += got
        if flow.arrival.bytes is None:
            return
        missing = flow.arrival.bytes - flow.received
        if missing:
            if missing < WAKE:
                flow.target.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, missing)
        elif self.plan.response_bytes is None:
            self._end(flow, time.monotonic_ns())
        else:
            self.selector.modify(flow.target, selectors.EVENT_WRITE, (flow, self._send_response))

    def _send_response(self, flow: Flow) -> None:
        assert flow.target is not None and self.plan.response_bytes is not None
        flow.response_sent += flow.target.send(self.zeros[: min(CHUNK, self.plan.response_bytes - flow.response_sent)])
        if flow.response_sent == self.plan.response_bytes:
            self.selector.unregister(flow.target)

    def _receive_response(self, flow: Flow) -> None:
        got = flow.source.recv_into(self.scratch)
        if not got:
            raise ConnectionError("the target closed it")
        flow.response_received += got
        if flow.response_received == self.plan.response_bytes:
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
    asked = _read()
    plan = msgspec.convert(asked["plan"], Background)
    generator = Generator(plan, asked["congestion_control"], asked["addresses"], asked["namespaces"], asked["port"])
    _write({"listening": True})
    begin = _read()
    sleep_until(begin["wait_from_ns"])
    sleep_until(begin["start_ns"])
    generator.run(0, begin["start_ns"])
    found = list(generator.rows())
    for first in range(0, len(found), ROWS):
        _write(found[first : first + ROWS])
    _write({"done": len(found)})


def _read() -> Any:
    line = sys.stdin.readline()
    if not line:
        sys.exit(0)
    return json.loads(line)


def _write(message: Any) -> None:
    sys.stdout.buffer.write(json.dumps(message).encode() + b"\n")
    sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()

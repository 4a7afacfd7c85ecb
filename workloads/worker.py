"""One worker of one job: replays its operations, iteration after iteration, inside a host.

Started by the testbed as ``python -m workloads.worker`` in the host's network namespace.
It talks in lines of JSON; standard library only.

=====================  ====================================================================
reads                  answers
=====================  ====================================================================
the job (`Job`)        ``{"listening": true}``
``{"connect_ns": t}``  at t ``{"flows": [{"source", "target", "saddr", "sport", "daddr", "dport"}]}``
``{"start_ns": t,      waits for t from w on; then one line per iteration, until killed:
"wait_from_ns": w}``   ``[iteration, start, comm_start, end, bytes_sent, late, operations]``,
                       in ns after t; operations: ``[[id, start, end]]`` of its collectives
=====================  ====================================================================

Two streams run side by side, as on a GPU: computes in their order, collectives in theirs;
each operation also waits for the ones it names. Computing is sleeping until an absolute
deadline of the monotonic clock, since burnt CPU would be taken from the emulated network.

Where a job's iterations begin on a grid, rank 0 decides and tells the others over pipes, a management
network of their own: workers end an iteration at slightly different instants, and each by itself could
decide differently.
"""

from __future__ import annotations

import fcntl
import itertools
import json
import os
import random
import socket
import struct
import sys
import termios
import threading
import time
from dataclasses import dataclass
from typing import Any

from core import layouts
from core.grid import Grid
from workloads import collectives, noise
from workloads.bands import Bands, mark
from workloads.clock import punctual, sleep_until
from workloads.collectives import Flow, Links

TCP_CONGESTION = 13
ACKED = layouts.TCP_INFO.reader("tcpi_bytes_acked")
ANSWER_S = 30.0
FROM_PORT = (
    30_000  # above the port listened at: connections begin at fixed ports, too, since paths are hashed from them
)


@dataclass(frozen=True)
class Job:
    """What one worker is told of its job; times in ns, sizes in bytes."""

    job: int
    rank: int
    addresses: list[str]
    port: int
    congestion_control: str
    operations: list[dict[str, Any]]
    channels: int  # connections per flow, each of which carries its share of every tensor
    offset_ns: int
    noise: str
    seed: str
    virtual_time: bool
    grid: list[int] | None  # period and phase of the slots in which its iterations begin
    lines: list[int]  # file descriptors that lead to the others (rank 0), or from rank 0
    bands: list[int]  # remaining bytes at which its packets move up a band; empty: there are no bands
    bytes: int  # that this worker sends in an iteration, if there are bands


def main() -> None:
    punctual()
    job = Job(**json.loads(sys.stdin.readline()))
    collectives.copying = not job.virtual_time
    collectives.bands = Bands(job.bands, job.bytes) if job.bands else None
    listeners = _listen(job)
    _say({"listening": True})
    sleep_until(_told()["connect_ns"])
    channels = _connect(job, listeners)
    for listener in listeners.values():
        listener.close()
    _say({"flows": [
        _describe(flow, channel, sock)
        for channel, links in enumerate(channels) for flow, sock in links.items() if flow[0] == job.rank
    ]})  # fmt: skip
    told = _told()
    sleep_until(told["wait_from_ns"])
    _iterate(job, channels, told["start_ns"])


def _say(message: Any) -> None:
    sys.stdout.write(json.dumps(message) + "\n")
    sys.stdout.flush()


def _told() -> dict[str, int]:
    if not (line := sys.stdin.readline()):
        raise SystemExit("the testbed is gone")
    return dict(json.loads(line))


def _socket(job: Job) -> socket.socket:
    """A TCP socket that uses the job's congestion control; read back, since a child
    namespace may silently offer another."""
    sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    name = job.congestion_control.encode()
    sock.setsockopt(socket.IPPROTO_TCP, TCP_CONGESTION, name)
    found = sock.getsockopt(socket.IPPROTO_TCP, TCP_CONGESTION, 16).split(b"\0")[0]
    if found != name:
        raise SystemExit(f"asked for congestion control {name!r}, the kernel took {found!r}")
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return sock


def _wanted(job: Job) -> list[tuple[Flow, int]]:
    """Every flow of the job and channel of it, in an order all workers agree on."""
    names = dict.fromkeys(op["algorithm"] for op in job.operations if op["kind"] != "compute")
    flows = dict.fromkeys(flow for name in names for flow in collectives.flows(name, len(job.addresses)))
    return [(flow, channel) for channel in range(job.channels) for flow in flows]


def _ports(job: Job, rank: int) -> dict[tuple[Flow, int], int]:
    """Where ``rank`` listens: a port for each connection that ends there, so that the port tells which it is."""
    ending = [one for one in _wanted(job) if one[0][1] == rank]
    return {one: job.port + number for number, one in enumerate(ending)}


def _listen(job: Job) -> dict[tuple[Flow, int], socket.socket]:
    listeners = {}
    for connection, port in _ports(job, job.rank).items():
        listener = listeners[connection] = _socket(job)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((job.addresses[job.rank], port))
        listener.listen(1)
        listener.settimeout(ANSWER_S)
    return listeners


def _connect(job: Job, listeners: dict[tuple[Flow, int], socket.socket]) -> list[Links]:
    """Connect every flow that begins here, accept every one that ends here; by channel."""
    channels: list[Links] = [{} for _ in range(job.channels)]
    ports = itertools.count(job.port + FROM_PORT)
    for connection in _wanted(job):
        flow, channel = connection
        if flow[0] == job.rank:
            sock = channels[channel][flow] = _socket(job)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            sock.bind((job.addresses[job.rank], next(ports)))
            sock.settimeout(ANSWER_S)
            sock.connect((job.addresses[flow[1]], _ports(job, flow[1])[connection]))
    for (flow, channel), listener in listeners.items():
        sock, _ = listener.accept()
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if job.bands:  # what ends here answers with ACKs, which nothing may hold up
            mark(sock, len(job.bands))
        channels[channel][flow] = sock
    for links in channels:
        for sock in links.values():
            sock.settimeout(None)
    return channels


def _describe(flow: Flow, channel: int, sock: socket.socket) -> dict[str, Any]:
    (saddr, sport), (daddr, dport) = sock.getsockname(), sock.getpeername()
    return {
        "source": flow[0], "target": flow[1], "channel": channel,
        "saddr": saddr, "sport": sport, "daddr": daddr, "dport": dport,
    }  # fmt: skip


class _Iteration:
    """Which operations of the current iteration are done, and when the waiting ones may go."""

    def __init__(self) -> None:
        self.changed = threading.Condition()
        self.done: dict[str, int] = {}
        self.failure: BaseException | None = None

    def wait(self, names: list[str]) -> int:
        """Block until all are done; the time of the last one, or 0 for none."""
        with self.changed:
            while not all(name in self.done for name in names):
                if self.failure:
                    raise SystemExit(f"communication failed: {self.failure}")
                self.changed.wait()
            return max((self.done[name] for name in names), default=0)

    def finish(self, name: str, when: int) -> None:
        with self.changed:
            self.done[name] = when
            self.changed.notify_all()

    def fail(self, error: BaseException) -> None:
        with self.changed:
            self.failure = error
            self.changed.notify_all()


def _iterate(job: Job, channels: list[Links], start_ns: int) -> None:
    mine = [op for op in job.operations if job.rank in op.get("ranks", range(len(job.addresses)))]
    computes = [op for op in mine if op["kind"] == "compute"]
    exchanges = [op for op in mine if op["kind"] != "compute"]
    for op in mine:  # an operation waits only for what runs here
        op["after"] = [name for name in op.get("after", []) if any(name == o["id"] for o in mine)]
    outgoing = [sock for links in channels for flow, sock in links.items() if flow[0] == job.rank]
    written = sum(_written(sock) for sock in outgoing)
    varies, draw = noise.parse(job.noise), random.Random(job.seed)
    pace = _Pace(job, start_ns)
    end = start_ns + job.offset_ns
    index = 0
    while True:
        begun = pace.begin(end)
        sleep_until(begun)
        if collectives.bands:
            collectives.bands.begin()
        factor = noise.factor(varies, draw, job.rank, len(job.addresses))
        state = _Iteration()
        timeline: list[tuple[str, int, int]] = []
        stream = None
        if exchanges:
            stream = threading.Thread(
                target=_communicate, args=(job, exchanges, channels, state, timeline), daemon=True
            )
            stream.start()
        late = _compute(computes, state, begun, factor)
        end = state.wait([op["id"] for op in mine])
        if stream:
            stream.join()
        before, written = written, sum(_written(sock) for sock in outgoing)
        sent = written - before
        _say([
            index, begun - start_ns, (timeline[0][1] if timeline else end) - start_ns, end - start_ns, sent, late,
            [[name, at - start_ns, until - start_ns] for name, at, until in timeline],
        ])  # fmt: skip
        index += 1


class _Pace:
    """When the next iteration begins: at once, or where the job's grid has a slot."""

    def __init__(self, job: Job, start_ns: int) -> None:
        self.grid = Grid(job.grid[0], start_ns + job.grid[1]) if job.grid else None
        self.leads, self.lines = job.rank == 0, job.lines
        self.placed = False  # the first iteration begins on a slot, however near it already is

    def begin(self, now_ns: int) -> int:
        """The instant at which the iteration begins that could begin at ``now_ns``."""
        if self.grid is None:
            return now_ns
        if self.leads:
            at = self.grid.begin_ns(now_ns) if self.placed else self.grid.next_ns(now_ns)
            self.placed = True
            for line in self.lines:
                os.write(line, at.to_bytes(8, "little"))
            return at
        told = os.read(self.lines[0], 8)
        if not told:
            raise SystemExit("rank 0 is gone")
        return max(now_ns, int.from_bytes(told, "little"))


def _written(sock: socket.socket) -> int:
    """Bytes ever written to a connection, as the kernel counts them: acknowledged and waiting."""
    while True:
        acked = _acked(sock)
        waiting = struct.unpack("i", fcntl.ioctl(sock, termios.TIOCOUTQ, b"\0" * 4))[0]
        if acked == _acked(sock):  # no ACK came in between
            return int(acked + waiting)


def _acked(sock: socket.socket) -> int:
    told = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, layouts.TCP_INFO_BYTES)
    return int(ACKED.unpack_from(told)[0])


def _compute(computes: list[dict[str, Any]], state: _Iteration, begun: int, factor: float) -> int:
    """Compute one after the other; how late the latest ended, in ns."""
    free, late = begun, 0
    for op in computes:
        deadline = max(free, state.wait(op["after"])) + int(op["duration_ns"] * factor)
        sleep_until(deadline)
        now = time.monotonic_ns()
        late = max(late, now - deadline)
        free = deadline
        state.finish(op["id"], now)
    return late


def _communicate(
    job: Job,
    exchanges: list[dict[str, Any]],
    channels: list[Links],
    state: _Iteration,
    timeline: list[tuple[str, int, int]],
) -> None:
    try:
        for op in exchanges:
            state.wait(op["after"])
            begun = time.monotonic_ns()
            _exchange(job, op, channels)
            ended = time.monotonic_ns()
            timeline.append((op["id"], begun, ended))
            state.finish(op["id"], ended)
    except BaseException as error:
        state.fail(error)


def _exchange(job: Job, op: dict[str, Any], channels: list[Links]) -> None:
    """One collective, its tensor spread over the channels."""
    run, n = collectives.find(op["algorithm"]).run, len(job.addresses)
    if len(channels) == 1:
        run(job.rank, n, op["bytes"], channels[0])
        return
    shares = zip(collectives.parts(len(channels), op["bytes"]), channels, strict=True)
    collectives.together(
        *(lambda size=size, links=links: run(job.rank, n, size, links) for size, links in shares if size)
    )


if __name__ == "__main__":
    main()

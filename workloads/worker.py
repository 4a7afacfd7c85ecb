"""One worker of one job: replays its operations, iteration after iteration, inside a host.

Started by the testbed as ``python -m workloads.worker`` in the host's network namespace.
It talks in lines of JSON; standard library only.

====================  =====================================================================
reads                 answers
====================  =====================================================================
the job (`Job`)       ``{"listening": true}``
``"connect"``         ``{"flows": [{"source", "target", "saddr", "sport", "daddr", "dport"}]}``
``{"start_ns": t}``   one line per iteration, until killed:
                      ``[iteration, start, comm_start, end, bytes_sent, late]``, in ns after t
====================  =====================================================================

Two streams run side by side, as on a GPU: computes in their order, collectives in theirs;
each operation also waits for the ones it names. Computing is sleeping until an absolute
deadline of the monotonic clock, since burnt CPU would be taken from the emulated network.
"""

from __future__ import annotations

import fcntl
import json
import random
import socket
import struct
import sys
import termios
import threading
import time
from dataclasses import dataclass
from typing import Any

from workloads import collectives
from workloads.clock import punctual, sleep_until
from workloads.collectives import Links

TCP_CONGESTION = 13
ANSWER_S = 30.0


@dataclass(frozen=True)
class Job:
    """What one worker is told of its job; times in ns, sizes in bytes."""

    job: int
    rank: int
    addresses: list[str]
    port: int
    congestion_control: str
    operations: list[dict[str, Any]]
    offset_ns: int
    noise: float
    seed: str
    virtual_time: bool


def main() -> None:
    punctual()
    job = Job(**json.loads(sys.stdin.readline()))
    collectives.copying = not job.virtual_time
    listener = _listen(job)
    _say({"listening": True})
    _expect("connect")
    links = _connect(job, listener)
    listener.close()
    _say({"flows": [_describe(flow, links[flow]) for flow in links if flow[0] == job.rank]})
    start = json.loads(sys.stdin.readline())["start_ns"]
    _iterate(job, links, start)


def _say(message: Any) -> None:
    sys.stdout.write(json.dumps(message) + "\n")
    sys.stdout.flush()


def _expect(word: str) -> None:
    line = sys.stdin.readline()
    if not line or json.loads(line) != word:
        raise SystemExit(f"expected {word!r}, got {line!r}")


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


def _listen(job: Job) -> socket.socket:
    listener = _socket(job)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind((job.addresses[job.rank], job.port))
    listener.listen(64)
    listener.settimeout(ANSWER_S)
    return listener


def _connect(job: Job, listener: socket.socket) -> Links:
    """Connect every flow that begins here, accept every one that ends here."""
    n = len(job.addresses)
    wanted: list[tuple[int, int]] = []
    for operation in job.operations:
        if operation["kind"] != "compute":
            for flow in collectives.find(operation["algorithm"]).flows(n):
                if flow not in wanted and job.rank in flow:
                    wanted.append(flow)
    links: Links = {}
    for source, target in wanted:
        if source == job.rank:
            sock = _socket(job)
            sock.bind((job.addresses[job.rank], 0))
            sock.settimeout(ANSWER_S)
            sock.connect((job.addresses[target], job.port))
            links[source, target] = sock
    for _ in [flow for flow in wanted if flow[1] == job.rank]:
        sock, (address, _port) = listener.accept()
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        links[job.addresses.index(address), job.rank] = sock
    for sock in links.values():
        sock.settimeout(None)
    return links


def _describe(flow: tuple[int, int], sock: socket.socket) -> dict[str, Any]:
    (saddr, sport), (daddr, dport) = sock.getsockname(), sock.getpeername()
    return {
        "source": flow[0], "target": flow[1],
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


def _iterate(job: Job, links: Links, start_ns: int) -> None:
    mine = [op for op in job.operations if job.rank in op.get("ranks", range(len(job.addresses)))]
    computes = [op for op in mine if op["kind"] == "compute"]
    exchanges = [op for op in mine if op["kind"] != "compute"]
    for op in mine:  # an operation waits only for what runs here
        op["after"] = [name for name in op.get("after", []) if any(name == o["id"] for o in mine)]
    outgoing = [sock for flow, sock in links.items() if flow[0] == job.rank]
    written = sum(_written(sock) for sock in outgoing)
    # Every worker of a job draws the same noise: it belongs to the job's iteration.
    noise = random.Random(job.seed)
    end = start_ns + job.offset_ns
    sleep_until(end)
    index = 0
    while True:
        begun = end
        factor = max(0.0, 1.0 + noise.gauss(0.0, job.noise)) if job.noise else 1.0
        state = _Iteration()
        timing = {"comm_start": 0, "late": 0}
        stream = None
        if exchanges:
            stream = threading.Thread(target=_communicate, args=(job, exchanges, links, state, timing), daemon=True)
            stream.start()
        _compute(computes, state, timing, begun, factor)
        end = state.wait([op["id"] for op in mine])
        if stream:
            stream.join()
        before, written = written, sum(_written(sock) for sock in outgoing)
        sent = written - before
        _say([
            index, begun - start_ns, (timing["comm_start"] or end) - start_ns, end - start_ns, sent, timing["late"],
        ])  # fmt: skip
        index += 1


def _written(sock: socket.socket) -> int:
    """Bytes ever written to a connection, as the kernel counts them: acknowledged and waiting."""
    while True:
        acked = struct.unpack_from("=Q", sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 192), 120)[0]
        waiting = struct.unpack("i", fcntl.ioctl(sock, termios.TIOCOUTQ, b"\0" * 4))[0]
        again = struct.unpack_from("=Q", sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 192), 120)[0]
        if acked == again:  # no ACK came in between
            return int(acked + waiting)


def _compute(
    computes: list[dict[str, Any]], state: _Iteration, timing: dict[str, int], begun: int, factor: float
) -> None:
    free = begun
    for op in computes:
        deadline = max(free, state.wait(op["after"])) + int(op["duration_ns"] * factor)
        sleep_until(deadline)
        now = time.monotonic_ns()
        timing["late"] = max(timing["late"], now - deadline)
        free = deadline
        state.finish(op["id"], now)


def _communicate(
    job: Job, exchanges: list[dict[str, Any]], links: Links, state: _Iteration, timing: dict[str, int]
) -> None:
    try:
        for op in exchanges:
            state.wait(op["after"])
            timing["comm_start"] = timing["comm_start"] or time.monotonic_ns()
            collectives.find(op["algorithm"]).run(job.rank, len(job.addresses), op["bytes"], links)
            state.finish(op["id"], time.monotonic_ns())
    except BaseException as error:
        state.fail(error)


if __name__ == "__main__":
    main()

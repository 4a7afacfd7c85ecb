"""Collectives, one file each: who sends how much to whom, and how.

A collective is a module with

``KIND``
    the kind of operation it carries out (``"all_reduce"``, ...);
``connections(n) -> int``
    how many directed flows there are among ``n`` workers, computed;
``rounds(n, size) -> list[dict[(source, target), int]]``
    payload bytes on each directed flow among ``n`` workers (ranks) for a tensor of ``size``
    bytes, in rounds of which each begins when the one before has ended everywhere; what
    overlaps is one round;
``run(rank, n, size, links) -> None``
    this rank's part, blocking; ``links[source, target]`` are connected sockets, each used one way.

Adding one is adding a file.
"""

from __future__ import annotations

import importlib
import mmap
import os
import pkgutil
import queue
import select
import socket
import threading
from collections.abc import Callable, Sequence
from functools import cache
from types import ModuleType

from workloads.bands import Bands

Flow = tuple[int, int]
Links = dict[Flow, socket.socket]

# A receiver is woken for this much at a time, not for every packet.
WAKE = 256 << 10
# One system call moves at most this much: each has its price under virtual time.
PIECE = 64 << 20


@cache
def names() -> list[str]:
    """The collectives there are."""
    return sorted(module.name for module in pkgutil.iter_modules(__path__))


@cache
def find(name: str) -> ModuleType:
    """The collective ``name``; raises `ValueError` naming those there are."""
    if name not in names():
        raise ValueError(f"there is no collective {name!r}; there are {', '.join(names())}")
    return importlib.import_module(f"workloads.collectives.{name}")


def connections(name: str, n: int) -> int:
    """How many flows the collective ``name`` has among ``n`` workers, computed."""
    return int(find(name).connections(n))


def flows(name: str, n: int) -> list[Flow]:
    """Who sends to whom in the collective ``name`` among ``n`` workers."""
    return list(dict.fromkeys(flow for one in find(name).rounds(n, n) for flow in one))


def volume(name: str, n: int, size: int, flow: Flow) -> int:
    """Payload bytes ``flow`` carries in one collective over a tensor of ``size`` bytes."""
    return sum(one.get(flow, 0) for one in find(name).rounds(n, size))


def parts(n: int, size: int) -> list[int]:
    """A tensor in ``n`` parts that differ by a byte at most."""
    return [size * (i + 1) // n - size * i // n for i in range(n)]


# Under virtual time (`workloads.worker` says so) nothing is copied. On a real clock copying is
# what keeps a sender from filling its buffer at once: without it bursts cost timeouts.
copying = True
COPIED = 1 << 20
# Where packets have priorities (`workloads.worker` says so): what marks them.
bands: Bands | None = None
_ZEROS = memoryview(bytes(COPIED))


@cache
def _hole() -> int:
    """A file of nothing but a hole: its pages are sent without being copied, or even there."""
    hole = os.memfd_create("zeros")
    os.ftruncate(hole, PIECE)
    return hole


@cache
def _sink() -> mmap.mmap:
    """Memory that received bytes would be written to; never touched, so never there."""
    return mmap.mmap(-1, PIECE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)


def send(link: socket.socket, size: int) -> None:
    """Send ``size`` bytes nobody looks at; ``link`` blocks."""
    while size > 0:
        piece = min(size, COPIED if copying else PIECE)
        if bands:
            piece = bands.claim(link, piece)
        sent = link.send(_ZEROS[:piece]) if copying else os.sendfile(link.fileno(), _hole(), 0, piece)
        if bands:
            bands.give_back(piece - sent)
        size -= sent


def receive(link: socket.socket, size: int) -> None:
    """Receive exactly ``size`` bytes and drop them.

    ``SO_RCVLOWAT`` lets the kernel wake us once so much is there instead of at every
    packet; ``MSG_TRUNC`` drops the bytes without copying (tcp(7)). A call that waits for
    everything it asked for (``MSG_WAITALL``) forgets that what it has taken already
    counts towards the mark: so it asks for what is certain to be followed by a mark's
    worth of bytes, and `poll` waits for those.
    """
    link.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, min(size, WAKE))
    while size > WAKE:
        size -= _take(link, min(size - WAKE, PIECE), socket.MSG_WAITALL)
    poll = select.poll()
    poll.register(link, select.POLLIN)
    while size > 0:
        link.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, size)
        poll.poll()
        size -= _take(link, size, 0)


def _take(link: socket.socket, size: int, flags: int) -> int:
    got = link.recv_into(_sink(), size, socket.MSG_TRUNC | flags)
    if got == 0:
        raise ConnectionResetError("the peer closed the connection")
    return got


def together(*tasks: Callable[[], None]) -> None:
    """Run ``tasks`` side by side until all have ended; the first error is raised at once.

    The others may then be blocked for good: they end with their process, as daemons.
    """
    ended: queue.SimpleQueue[BaseException | None] = queue.SimpleQueue()

    def run(task: Callable[[], None]) -> None:
        try:
            task()
        except BaseException as error:
            ended.put(error)
        else:
            ended.put(None)

    for task in tasks:
        threading.Thread(target=run, args=(task,), daemon=True).start()
    for _ in tasks:
        if error := ended.get():
            raise error


def exchange(sends: Sequence[tuple[socket.socket, int]], receives: Sequence[tuple[socket.socket, int]]) -> None:
    """Send and receive so many bytes over each of these sockets, all at the same time."""
    tasks = [lambda link=link, size=size: send(link, size) for link, size in sends if size]
    tasks += [lambda link=link, size=size: receive(link, size) for link, size in receives if size]
    together(*tasks)


def relay(sources: Sequence[socket.socket], targets: Sequence[socket.socket], pieces: Sequence[int]) -> None:
    """Send ``pieces`` to every target, each as soon as it has come in from every source."""
    arrived = {source: [threading.Semaphore(0) for _ in targets] for source in sources}

    def take(source: socket.socket) -> None:
        for piece in pieces:
            receive(source, piece)
            for one in arrived[source]:
                one.release()

    def pass_on(number: int, target: socket.socket) -> None:
        for piece in pieces:
            for source in sources:
                arrived[source][number].acquire()
            send(target, piece)

    together(
        *(lambda source=source: take(source) for source in sources),
        *(lambda number=number, target=target: pass_on(number, target) for number, target in enumerate(targets)),
    )

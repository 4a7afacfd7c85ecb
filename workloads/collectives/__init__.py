"""Collectives, one file each: who sends how much to whom, and how.

A collective is a module with

``flows(n) -> list[(source, target)]``
    the directed flows among ``n`` workers (ranks);
``volume(n, size, flow) -> int``
    payload bytes one flow carries in one collective of ``size`` bytes (a tensor of that size);
``run(rank, n, size, links) -> None``
    this rank's part, blocking; ``links[source, target]`` are connected sockets.

Adding one is adding a file.
"""

from __future__ import annotations

import importlib
import pkgutil
import select
import socket
from functools import cache
from pathlib import Path
from types import ModuleType

Flow = tuple[int, int]
Links = dict[Flow, socket.socket]

# One system call moves at most this much; large, since each call has its price under virtual time.
PIECE = 1 << 20
_ZEROS = memoryview(bytes(PIECE))


def names() -> list[str]:
    """The collectives there are."""
    return sorted(module.name for module in pkgutil.iter_modules([str(Path(__file__).parent)]))


@cache
def find(name: str) -> ModuleType:
    """The collective ``name``; raises `ValueError` naming those there are."""
    if name not in names():
        raise ValueError(f"there is no collective {name!r}; there are {', '.join(names())}")
    return importlib.import_module(f"workloads.collectives.{name}")


def send(link: socket.socket, size: int) -> None:
    """Send ``size`` bytes nobody looks at."""
    while size > 0:
        piece = min(size, PIECE)
        link.sendall(_ZEROS[:piece])
        size -= piece


def receive(link: socket.socket, size: int) -> None:
    """Receive exactly ``size`` bytes and drop them.

    ``SO_RCVLOWAT`` makes `poll` wake us once a whole piece is there instead of at every
    packet; ``MSG_TRUNC`` drops the bytes without copying (tcp(7)). A blocking
    ``MSG_WAITALL`` would not do: what it has taken no longer counts towards the mark.
    """
    poll = select.poll()
    poll.register(link, select.POLLIN)
    while size > 0:
        piece = min(size, PIECE // 4)
        link.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, piece)
        poll.poll()
        got = link.recv_into(_SINK, piece, socket.MSG_TRUNC)
        if got == 0:
            raise ConnectionResetError("the peer closed the connection")
        size -= got


_SINK = bytearray(PIECE // 4)

"""Network namespaces held by a file descriptor: no process, no name, gone with their owner."""

from __future__ import annotations

import contextlib
import ctypes
import os
from collections.abc import Iterator
from functools import cache

CLONE_NEWNET = 0x40000000


@cache
def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def _check(result: int, what: str) -> None:
    if result != 0:
        code = ctypes.get_errno()
        raise OSError(code, f"{what}: {os.strerror(code)}")


def current() -> int:
    """A descriptor of the calling thread's network namespace."""
    return os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)


def create() -> int:
    """A descriptor of a new network namespace; closing the last one ends the namespace."""
    home = current()
    try:
        _check(_libc().unshare(CLONE_NEWNET), "unshare(CLONE_NEWNET)")
        return current()
    finally:
        _check(_libc().setns(home, CLONE_NEWNET), "setns")
        os.close(home)


@contextlib.contextmanager
def entered(namespace: int) -> Iterator[None]:
    """Run the block in ``namespace``; sockets and processes made in it belong there."""
    home = current()
    try:
        _check(_libc().setns(namespace, CLONE_NEWNET), "setns")
        yield
    finally:
        _check(_libc().setns(home, CLONE_NEWNET), "setns")
        os.close(home)

"""Report the progress of a long computation to a listener, if there is one.

A command line installs a listener (`listening`) and prints. The computation does not depend on this output. Inside `silent`
nothing is printed.
"""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Iterator
from contextvars import ContextVar

Listener = Callable[[int, int], None]  # done, of how many
EVERY_S = 1.0  # how often a listener is called at most

_silent: ContextVar[bool] = ContextVar("silent", default=False)
_listener: ContextVar[Listener | None] = ContextVar("listener", default=None)


@contextlib.contextmanager
def listening(listener: Listener) -> Iterator[None]:
    """Report everything counted inside to ``listener``."""
    token = _listener.set(listener)
    try:
        yield
    finally:
        _listener.reset(token)


def counter(total: int) -> Callable[[int], None]:
    """A function that takes how much of ``total`` is done; it may be called often."""
    listener = _listener.get()
    if listener is None:
        return _ignore
    due_s = time.monotonic() + EVERY_S

    def count(done: int) -> None:
        nonlocal due_s
        now_s = time.monotonic()
        if now_s >= due_s:
            due_s = now_s + EVERY_S
            listener(done, total)

    return count


def _ignore(done: int) -> None:
    pass


@contextlib.contextmanager
def silent() -> Iterator[None]:
    """Suppress progress notes of calls inside the context, and of processes started there."""
    token = _silent.set(True)
    try:
        yield
    finally:
        _silent.reset(token)


def is_silent() -> bool:
    """Return True inside `silent`."""
    return _silent.get()


def note(line: str) -> None:
    """Print ``line`` on standard error, unless inside `silent`."""
    if not is_silent():
        print(line, file=sys.stderr, flush=True)

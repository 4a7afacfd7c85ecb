"""Ctrl-C, a closed terminal, `kill`: each raises KeyboardInterrupt where the command is.

Python loses the exception if it is raised in a destructor, or in a library's import that catches everything. A loop that
waits therefore checks again (`check`).
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from types import FrameType

from testbed.core.errors import EXIT_INTERRUPTED

_WORDS = {signal.SIGINT: "interrupted", signal.SIGTERM: "terminated", signal.SIGHUP: "terminated"}
_asked = ""
_kept = ""


def listen() -> None:
    """End this process on each of the handled signals, except those ignored by nohup or by a shell's background job."""
    global _asked, _kept  # noqa: PLW0603 (a signal handler has nothing else to write to)
    _asked = _kept = ""
    for number in _WORDS:
        if number == signal.SIGTERM or signal.getsignal(number) not in (signal.SIG_IGN, None):
            signal.signal(number, _end)


def check() -> None:
    """Raises KeyboardInterrupt if this process was asked to end and has not."""
    if _asked:
        raise KeyboardInterrupt(_asked)


@contextlib.contextmanager
def deferred() -> Iterator[None]:
    """Signals that end this process are handled after the block. Processes that the block starts are then known, and can be ended."""
    if threading.current_thread() is not threading.main_thread():  # only that one is ever interrupted
        yield
        return
    asked: list[int] = []
    before = {number: signal.getsignal(number) for number in _WORDS}
    try:
        for number, handler in before.items():
            if callable(handler):
                signal.signal(number, lambda number, _frame: asked.append(number))
        yield
    finally:
        for number, handler in before.items():
            if callable(handler):
                signal.signal(number, handler)
        for first in asked[:1]:
            os.kill(os.getpid(), first)


@contextlib.contextmanager
def keeping(what: str) -> Iterator[None]:
    """An interruption inside the block keeps ``what``; the last line of the command reports it."""
    global _kept  # noqa: PLW0603
    try:
        yield
    except KeyboardInterrupt:
        _kept = what
        raise


def guarded(command: Callable[[], int]) -> int:
    """Return the exit code of ``command``, or `EXIT_INTERRUPTED` after a printed line that states what is kept
    (`keeping`)."""
    try:
        return command()
    except KeyboardInterrupt as interrupt:
        # If an interruption arrives while Python compiles text (for example of a dataclass), Python ends itself by SIGINT at
        # its exit, even if the interruption was handled. Executing another text prevents this.
        exec("pass")
        what = str(interrupt) or _WORDS[signal.SIGINT]
        print(f"\n{what}{': ' if _kept else ''}{_kept}", file=sys.stderr)
        return EXIT_INTERRUPTED


def _end(number: int, _frame: FrameType | None) -> None:
    global _asked  # noqa: PLW0603
    _asked = _WORDS[signal.Signals(number)]
    raise KeyboardInterrupt(_asked)

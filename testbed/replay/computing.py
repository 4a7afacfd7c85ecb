"""Announce real computing to the monitor of virtual time, which stops while the computing lasts.

Otherwise a process that computes for a minute looks like an endless loop, and the monitor ends the run
(`testbed.backends.progress`). Standard library only.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator

CONSOLE = "/dev/console"  # of a user-mode Linux: the monitor outside receives each write at once


@contextlib.contextmanager
def announced(who: str, console: str = CONSOLE) -> Iterator[None]:
    """``with announced("job 0, worker 1"): …``: computes for real, for up to half an hour at a time.

    For parts of a run other than replayed traces, of which none computes for real yet: a custom topology that
    takes long to build, or other participants.
    """
    _say(console, {"event": "computing", "who": who, "begins": True})
    try:
        yield
    finally:
        _say(console, {"event": "computing", "who": who, "begins": False})


def _say(console: str, event: dict[str, object]) -> None:
    """In one write, so that other output cannot split it."""
    out = os.open(console, os.O_WRONLY | os.O_APPEND | os.O_NOCTTY)
    try:
        os.write(out, json.dumps(event).encode() + b"\n")
    finally:
        os.close(out)

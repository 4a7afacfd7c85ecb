"""Announce real computing, under virtual time, to whom waits outside: virtual time stands still while it lasts.

Otherwise a process that computes for a minute cannot be told from one that spins for ever, and ends the run
(`testbed.backends.progress`). Standard library only.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator

CONSOLE = "/dev/console"  # of a user-mode Linux: what is written there is heard outside at once


@contextlib.contextmanager
def announced(who: str, console: str = CONSOLE) -> Iterator[None]:
    """``with announced("job 0, worker 1"): …``: computes for real, for up to half an hour at a time.

    For what a run takes part in beside replayed traces, of which nothing here computes for real yet: a topology of
    one's own that takes long to build, participants to come.
    """
    _say(console, {"event": "computing", "who": who, "begins": True})
    try:
        yield
    finally:
        _say(console, {"event": "computing", "who": who, "begins": False})


def _say(console: str, event: dict[str, object]) -> None:
    """In one write, so that nobody else's words come in between."""
    out = os.open(console, os.O_WRONLY | os.O_APPEND | os.O_NOCTTY)
    try:
        os.write(out, json.dumps(event).encode() + b"\n")
    finally:
        os.close(out)

"""A shell inside a run: when it opens, and the messages between it and the terminal.

The shell asks with the events `Prompt` and `Output`; each question has a number, and the answer to it is an `Answer` as JSON.
"""

from __future__ import annotations

import msgspec


class ShellRequest(msgspec.Struct, frozen=True):
    """When a run opens a shell."""

    folder: str  # the current folder of its commands
    at_start: bool = True  # before the first iteration; the run waits for ``run``
    pause_ns: int | None = None  # so long after the start; virtual time only
    script: str | None = None  # a Mininet script that replaces the shell


class Answer(msgspec.Struct, frozen=True):
    """The line typed, or the reply that the command continues."""

    line: str | None = None  # None: the end of what is typed
    interrupt: bool = False  # the running command is to end

"""Messages between a shell inside a run and the terminal, and the times at which the shell opens.

The shell sends the events `Prompt` and `Output`. Each prompt has a number, and its answer is an `Answer` as JSON.

An answer enters user-mode Linux as the names of empty files. There, each path look-up costs 1 us of virtual time, but listing
an open folder costs none.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable

import msgspec

PIECE = 200  # characters of an answer in one file name, which may have 255


class ShellRequest(msgspec.Struct, frozen=True):
    """The request for a shell: when it opens, and the script that may replace it."""

    folder: str  # the current folder of its commands
    at_start: bool = True  # before the first iteration; the run waits for ``run``
    pause_ns: int | None = None  # so long after the start; virtual time only
    script: str | None = None  # a Mininet script that replaces the shell


class Answer(msgspec.Struct, frozen=True):
    """The line typed, or the reply that the command continues."""

    line: str | None = None  # None: end of the input
    interrupt: bool = False  # the running command is to end


def as_names(number: int, answer: bytes) -> list[str]:
    """The names of files that together are the answer to a question."""
    text = base64.urlsafe_b64encode(answer).decode()
    pieces = [text[first : first + PIECE] for first in range(0, len(text), PIECE)]
    return [f"{number}.{len(pieces)}.{index}.{piece}" for index, piece in enumerate(pieces)]


def from_names(number: int, names: Iterable[str]) -> bytes | None:
    """The answer to a question, if all of it is among these names."""
    found = [name.split(".") for name in names if name.startswith(f"{number}.")]
    if not found or len(found) < int(found[0][1]):
        return None
    return base64.urlsafe_b64decode("".join(name[3] for name in sorted(found, key=lambda name: int(name[2]))))

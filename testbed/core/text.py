"""Text from other sources (arguments, files, a guest, a server), made safe for messages to a person.

A terminal obeys control characters, and a name of five thousand letters is unreadable. All external text is therefore
cleaned here before it becomes part of a message.
"""

from __future__ import annotations

import math
import os
import re
import shlex
import sys
from collections.abc import Collection, Sequence
from decimal import Decimal

LONGEST = 80  # characters of one name or value
LONGEST_PARAGRAPH = 4000  # characters of a complete message
_WORD = re.compile(rf"[^\s/]{{{LONGEST + 1},}}")  # the number of folders in a path is not limited


def plain(text: object) -> str:
    r"""``text`` in one line without control characters: an escape is shown as ``\x1b``, a byte that is no UTF-8 as ``\xff``."""
    return "".join(map(_character, str(text)))


def shown(text: object, limit: int = LONGEST) -> str:
    """Return ``text`` without control characters (`plain`), at most ``limit`` characters; a longer text loses its
    middle."""
    return _cut(plain(text), limit)


def quoted(text: object, limit: int = LONGEST) -> str:
    """Return ``text`` as `shown` does, in single quotes."""
    return f"'{shown(text, limit)}'"


def paragraph(message: object) -> str:
    """Return a complete message for a terminal: its line breaks stay, control characters and overlong words are
    shortened."""
    lines = [_WORD.sub(lambda word: shown(word[0]), plain(line.expandtabs())) for line in str(message).split("\n")]
    return _cut("\n".join(lines), LONGEST_PARAGRAPH)


def file_name(text: str) -> str:
    """``text`` as one harmless part of a path: letters, digits, dot, underscore, hyphen; at most 64, not hidden, not empty."""
    return re.sub(r"[^A-Za-z0-9._-]+", "_", text).lstrip("._-")[:64] or "unnamed"


def closest(name: str, known: Collection[str]) -> str | None:
    """The known name that is closest to ``name``; None if none is close."""
    import difflib  # noqa: PLC0415  # names are seldom wrong, and workers inside emulated hosts import this module

    return next(iter(difflib.get_close_matches(name[:LONGEST], known, 1)), None)


def did_you_mean(name: str, known: Collection[str], otherwise: str) -> str:
    """The known name that is closest to ``name``, as a question; ``otherwise`` if none is close."""
    close = closest(name, known)
    return otherwise if close is None else f"Did you mean {close!r}?"


def count(number: object, noun: str, plural: str = "") -> str:
    """A number of things: ``1 job``, ``2 jobs``."""
    return f"{number} {noun if str(number) == '1' else plural or noun + 's'}"


def decimal(value: float, digits: int = 4) -> str:
    """A number for people, to so many digits and without an exponent: ``49860``, ``0.0123``. All digits before the point are there."""
    if not math.isfinite(value):
        return f"{value}"
    if abs(value) >= 10**digits:
        return f"{value:.0f}"
    return f"{Decimal(f'{value:.{digits}g}'):f}"


def command(*words: object, root: bool = False) -> str:
    """A command of the testbed to copy: ``mltcp show resnet50``. For ``root`` it has the program path, as `sudo` changes PATH."""
    program = ["sudo", _program()] if root else ["mltcp"]
    return shlex.join([*program, *map(str, words)])


def _program() -> str:
    """The path of ``mltcp`` in this environment, as short as the current folder allows."""
    path = os.path.join(os.path.abspath(os.path.dirname(sys.executable)), "mltcp")
    shorter = os.path.relpath(path)
    return path if shorter.startswith(os.pardir) else shorter


def is_text(text: str) -> bool:
    """Return True if ``text`` (an argument, a name) is UTF-8 without NUL, so that it can be part of a path."""
    return "\0" not in text and not any("\ud800" <= one <= "\udfff" for one in text)


def first_stray(arguments: Sequence[str]) -> str | None:
    """The problem of a command line whose arguments are not all text (`is_text`); None: there is none."""
    for argument in arguments:
        if not is_text(argument):
            return f"the argument {quoted(argument)} is not text (UTF-8 without NUL)"
    return None


def _cut(text: str, limit: int) -> str:
    if len(text) <= limit:
        return text
    tail = limit // 3
    return f"{text[: limit - tail - 1]}…{text[-tail:]}"


def _character(character: str) -> str:
    if character.isprintable():
        return character
    if "\udc80" <= character <= "\udcff":  # a byte that Python could not decode (surrogateescape)
        return f"\\x{ord(character) - 0xDC00:02x}"
    return character.encode("unicode_escape").decode()

"""The text form of a system, ``reno:early_close=0.8+cubic,label=mine``, and its parser.

::

    SYSTEM = PART {"+" PART}
    PART   = NAME [":" OPTION {"," OPTION}]
    OPTION = KEY "=" VALUE

NAME is a registered name or a file (``./mine.py``, ``./tcp_mine.c``), and ends at the first ``:``. VALUE has no comma. Only
congestion controls alternate. A ``+`` in the options of another system belongs to the value: ``mlt:bands=2+drop``.
``label=`` and ``role=`` apply to the complete system, in any part. Job schedulers and trained models are a PART, too.

Each kind of system defines its keys and values (`testbed.core.options`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import cache

from testbed.core.errors import RequestError
from testbed.core.text import quoted

Pairs = tuple[tuple[str, str], ...]
WHOLE = ("label", "role")  # options of the complete system


@dataclass(frozen=True)
class Part:
    """A name or a file, with its options as (key, value) pairs in their order."""

    name: str
    options: Pairs = ()

    def __str__(self) -> str:
        return f"{self.name}:{joined(self.options)}" if self.options else self.name

    def having(self, options: Iterable[tuple[str, str]]) -> Part:
        """Return this part with further options.

        Raises `RequestError` for a comma, which ends an option in the text.
        """
        more = tuple(options)
        if stray := [(key, value) for key, value in more if "," in key + value]:
            key, value = stray[0]
            raise RequestError(f"{key}: {quoted(value)} has a comma. In the text of a system, a comma ends an option.")
        return replace(self, options=(*self.options, *more))


@dataclass(frozen=True)
class SystemText:
    """A system as typed: parts that take turns, or one, and what belongs to all of them."""

    parts: tuple[Part, ...]
    label: str | None = None
    role: str | None = None

    def __str__(self) -> str:
        own = tuple((key, value) for key in WHOLE if (value := getattr(self, key)) is not None)
        return "+".join(map(str, (*self.parts[:-1], self.parts[-1].having(own))))


def parse(text: str, takes_turns: Callable[[str], bool]) -> SystemText:
    """Parse a complete system. ``takes_turns(name)``: True if a ``+`` after the options of ``name`` begins another part.

    Raises `RequestError`.
    """
    pieces: list[str] = []
    for piece in text.split("+"):
        if pieces and ":" in pieces[-1] and not takes_turns(name_of(pieces[-1])):
            pieces[-1] += f"+{piece}"
        else:
            pieces.append(piece)
    parts = [part(piece) for piece in pieces]
    given = {key: dict.fromkeys(value for one in parts for own, value in one.options if own == key) for key in WHOLE}
    for key, values in given.items():
        if len(values) > 1:
            raise RequestError(f"{key} in {quoted(text)}: {' and '.join(values)} are given. Give one.")
    kept = (replace(one, options=tuple(pair for pair in one.options if pair[0] not in WHOLE)) for one in parts)
    return SystemText(tuple(kept), **{key: next(iter(values), None) for key, values in given.items()})


def name_of(text: str) -> str:
    """The name of a part, regardless of its options."""
    return text.partition(":")[0]


@cache
def part(text: str) -> Part:
    """Read ``NAME:KEY=VALUE,…``; raises `RequestError`."""
    name, _, rest = text.partition(":")
    try:
        return Part(name, pairs(rest))
    except RequestError as error:
        raise RequestError(f"{error.what} in {quoted(text)}") from error


def pairs(text: str) -> Pairs:
    """Read ``KEY=VALUE,…``; raises `RequestError`."""
    found = []
    for item in filter(None, text.split(",")):
        key, equals, value = item.partition("=")
        if not equals or not key:
            raise RequestError(f"{quoted(item)} is no option. Write KEY=VALUE, with a comma between two.")
        found.append((key, value))
    return tuple(found)


def joined(options: Pairs) -> str:
    """The text that `pairs` reads."""
    return ",".join(f"{key}={value}" for key, value in options)

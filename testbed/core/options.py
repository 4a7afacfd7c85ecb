"""Options behind a name (``cassini:step=2,over=cubic``), declared by the frozen dataclass that holds them.

A module with options defines ``Options``, whose fields are made by `option`: default, meaning, and reader of the text.
Help and typed values follow from these. `testbed.core.system_text` splits the text, and `read` converts its pairs.
Each type has one reader: `Integer`, `Number`, `Fraction`, `OneOf`, `Position`, `Boolean`, `Time`, `Seconds`, `Bytes`,
`Name`. A reader raises `ValueError` for a text that is no value of its type.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, TypeVar

from testbed.core import system_text
from testbed.core.errors import RequestError
from testbed.core.system_text import Part
from testbed.core.text import closest, quoted, shown
from testbed.core.units import Duration, Quantity, Size, parse_fraction

T = TypeVar("T")
Q = TypeVar("Q", bound=Quantity)


class OptionError(RequestError):
    """An unknown option or an invalid value; the message lists the valid ones."""


def option(default: T, meaning: str, read: Callable[[str], T], *, alias: str = "") -> T:
    """A field of `Options`; ``read`` raises `ValueError` where a text is no value of it. ``alias``: another name, which help leaves out."""
    made: T = field(default=default, metadata={"meaning": meaning, "read": read, "alias": alias})
    return made


@dataclass(frozen=True)
class Declared:
    """One option: name, meaning, reader of its text, and a former name, which help omits."""

    name: str
    meaning: str
    read: Callable[[str], Any]
    alias: str = ""

    @property
    def names(self) -> set[str]:
        """Names that are valid before ``=``."""
        return {self.name, self.alias} - {""}


def declared(options: type[Any]) -> tuple[Declared, ...]:
    """The options of a dataclass whose fields `option` made."""
    return tuple(Declared(one.name, **one.metadata) for one in fields(options))


def parse(options: type[T], text: str) -> T:
    """Read the options of ``text``, which is ``name`` or ``name:option=value,…``; raises `RequestError`."""
    return options(**read(declared(options), system_text.part(text)))


def read(options: Sequence[Declared], part: Part) -> dict[str, Any]:
    """The values that ``part`` gives ``options``, by name; raises `OptionError`."""
    known = {name: one for one in options for name in one.names}
    values: dict[str, Any] = {}
    for key, text in part.options:
        one = known.get(key)
        if one is None:
            raise unknown(f"{key}={text}", part, options)
        if one.name in values:
            raise OptionError(f"{one.name} in {quoted(part)}: it is given twice. Give it once.")
        try:
            values[one.name] = one.read(text)
        except (ValueError, ZeroDivisionError, OverflowError) as error:
            raise OptionError(f"{key} in {quoted(part)}: {error}") from error
    return values


DESCRIBED = 6  # options that a message describes; of more it lists the names


def unknown(item: str, part: Part, options: Sequence[Declared]) -> OptionError:
    """The error for an option that a name does not have, with the closest option."""
    what = f"{quoted(item)} in {quoted(part)} is no option of {part.name}"
    if not options:
        return OptionError(f"{what}, which takes no parameters. Leave it out.")
    close = closest(item.partition("=")[0], [one.name for one in options])
    if close is not None:
        return OptionError(f"{what}. Did you mean {meanings([one for one in options if one.name == close])}?")
    shown = meanings(options) if len(options) <= DESCRIBED else ", ".join(one.name for one in options)
    return OptionError(f"{what}. It has {shown}.")


def names(options: Sequence[Declared]) -> set[str]:
    """Names that are valid before ``=``: every option, and its alias."""
    return {name for one in options for name in one.names}


def effective(options: Any) -> dict[str, str]:
    """Return every option with its value as text, explicit or default."""
    return {one.name: str(getattr(options, one.name)) for one in declared(type(options))}


def meanings(options: Sequence[Declared]) -> str:
    """Return one line with every option and its meaning."""
    return ", ".join(f"{one.name} ({one.meaning})" for one in options)


_INTEGER = re.compile(r"[+-]?\d{1,30}", re.ASCII)
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d{1,4})?", re.ASCII)


@dataclass(frozen=True)
class Integer:
    """A reader of whole numbers from ``low`` to ``high``; it rounds nothing."""

    low: int
    high: int

    def __call__(self, text: str) -> int:
        if not _INTEGER.fullmatch(text):
            raise ValueError(f"{quoted(text)} is not a whole number. Use one from {self.low} to {self.high}")
        value = int(text)
        if not self.low <= value <= self.high:
            raise ValueError(f"{shown(text)} is not between {self.low} and {self.high}")
        return value


@dataclass(frozen=True)
class Number:
    """A reader of finite numbers."""

    low: float
    high: float

    def __call__(self, text: str) -> float:
        if not _NUMBER.fullmatch(text):
            raise ValueError(f"{quoted(text)} is not a number. Use one from {self.low:g} to {self.high:g}")
        value = float(text)
        if not self.low <= value <= self.high:
            raise ValueError(f"{shown(text)} is not between {self.low:g} and {self.high:g}")
        return value


@dataclass(frozen=True)
class Fraction:
    """A share: ``10%`` or ``0.1``; ``below``: less than it."""

    low: float = 0.0
    high: float = 1.0
    below: float = math.inf

    def __call__(self, text: str) -> float:
        value = parse_fraction(text)
        if not (self.low <= value <= self.high and value < self.below):
            high = f"below {self.below:g}" if self.below <= self.high else f"{self.high:g} at most"
            raise ValueError(f"{shown(text)} is not a share of at least {self.low:g} and {high}")
        return value


@dataclass(frozen=True)
class OneOf:
    """A reader of one of several words.

    An alias is read as its canonical word: ``OneOf("zero", "local", keep="local")``.
    """

    words: tuple[str, ...]
    aliases: tuple[tuple[str, str], ...] = ()

    def __init__(self, *words: str, **aliases: str) -> None:
        object.__setattr__(self, "words", words)
        object.__setattr__(self, "aliases", tuple(aliases.items()))

    def __call__(self, text: str) -> str:
        text = dict(self.aliases).get(text, text)
        if text not in self.words:
            raise ValueError(f"{quoted(text)} is not one of {', '.join(self.words)}")
        return text


@dataclass(frozen=True)
class Position:
    """A reader of one of several words, as its index; aliases as in `OneOf`."""

    words: tuple[str, ...]
    aliases: tuple[tuple[str, str], ...] = ()

    def __init__(self, *words: str, **aliases: str) -> None:
        object.__setattr__(self, "words", words)
        object.__setattr__(self, "aliases", tuple(aliases.items()))

    def __call__(self, text: str) -> int:
        return self.words.index(OneOf(*self.words, **dict(self.aliases))(text))


@dataclass(frozen=True)
class Boolean:
    """``yes`` or ``on``, ``no`` or ``off``."""

    def __call__(self, text: str) -> bool:
        return OneOf("yes", "no", "on", "off")(text) in ("yes", "on")


def _within(value: Q, text: str, low: int, high: int) -> Q:
    if not low <= value <= high:
        kind = type(value)
        raise ValueError(f"{shown(text)} is not between {kind(low).exact} and {kind(high).exact}")
    return value


@dataclass(frozen=True)
class Time:
    """A time with its unit: ``340ms``, within limits in nanoseconds."""

    low: int = 0
    high: int = Duration.limit

    def __call__(self, text: str) -> Duration:
        return _within(Duration.parse(text), text, self.low, self.high)


@dataclass(frozen=True)
class Seconds:
    """A time with its unit, in seconds."""

    def __call__(self, text: str) -> float:
        return Duration.parse(text) / 1e9


@dataclass(frozen=True)
class Bytes:
    """A size with its unit: ``64kB``, within limits in bytes."""

    low: int = 0
    high: int = Size.limit

    def __call__(self, text: str) -> int:
        return int(_within(Size.parse(text), text, self.low, self.high))


@dataclass(frozen=True)
class Name:
    """A word that something else looks up."""

    def __call__(self, text: str) -> str:
        if not text.strip():
            raise ValueError("the value is empty")
        return text

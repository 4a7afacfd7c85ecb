"""Options behind a name (``cassini:step=2,over=cubic``), declared by the frozen dataclass that holds them.

A module that takes options has ``Options``, every field made by `option`: its default, what it means, and how its
text is read. From these follow the parser and the help. There is one reader for each type: `Integer`, `Number`, `Fraction`, `OneOf`,
`Boolean`, `Time`, `Bytes`, `Name`. A reader raises `ValueError` for a text that is no value of its type.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import Field, dataclass, field, fields
from typing import Any, TypeVar

from testbed.core.errors import RequestError
from testbed.core.text import quoted, shown
from testbed.core.units import Duration, Size, parse_fraction

T = TypeVar("T")


class OptionError(RequestError):
    """No such option, or a value that it does not take; the message says what there is."""


def option(default: T, meaning: str, read: Callable[[str], T], *, alias: str = "") -> T:
    """A field of `Options`; ``read`` raises `ValueError` where a text is no value of it. ``alias``: another name, which help leaves out."""
    made: T = field(default=default, metadata={"meaning": meaning, "read": read, "alias": alias})
    return made


def parse(options: type[T], text: str) -> T:
    """Read the options of ``text``, which is ``name`` or ``name:option=value,…``; raises `OptionError`."""
    name, _, rest = text.partition(":")
    known = {one.name: one for one in _fields(options)}
    aliases = {alias: one.name for one in _fields(options) if (alias := one.metadata["alias"])}
    values: dict[str, Any] = {}
    for item in filter(None, rest.split(",")):
        key, equals, value = item.partition("=")
        key = aliases.get(key, key)
        if key not in known or not equals or key in values:
            has = f" (once each): {meanings(options)}" if known else ", which has none"
            raise OptionError(f"{quoted(item)} in {quoted(text)} is no option of {name}{has}")
        try:
            values[key] = known[key].metadata["read"](value)
        except (ValueError, ZeroDivisionError) as error:
            raise OptionError(f"{key} in {quoted(text)}: {error}") from error
    return options(**values)


def names(options: type[Any]) -> set[str]:
    """What may be written in front of ``=``: every option, and its alias."""
    return {name for one in _fields(options) for name in (one.name, one.metadata["alias"]) if name}


def effective(options: Any) -> dict[str, str]:
    """Every option with the value that it has, as written or by default."""
    return {one.name: str(getattr(options, one.name)) for one in _fields(type(options))}


def meanings(options: type[Any]) -> str:
    """Every option and what it means, in one line."""
    return ", ".join(f"{one.name} ({one.metadata['meaning']})" for one in _fields(options))


_INTEGER = re.compile(r"[+-]?\d{1,30}", re.ASCII)
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d{1,4})?", re.ASCII)


@dataclass(frozen=True)
class Integer:
    """A whole number; nothing is rounded."""

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
    """A finite number."""

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
    """One of some words. An alias is read as the word it stands for: ``OneOf("zero", "local", keep="local")``."""

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
    """One of some words, as its number."""

    words: tuple[str, ...]

    def __init__(self, *words: str) -> None:
        object.__setattr__(self, "words", words)

    def __call__(self, text: str) -> int:
        return self.words.index(OneOf(*self.words)(text))


@dataclass(frozen=True)
class Boolean:
    """``yes`` or ``on``, ``no`` or ``off``."""

    def __call__(self, text: str) -> bool:
        return OneOf("yes", "no", "on", "off")(text) in ("yes", "on")


@dataclass(frozen=True)
class Time:
    """A time with its unit: ``340ms``."""

    def __call__(self, text: str) -> Duration:
        return Duration.parse(text)


@dataclass(frozen=True)
class Seconds:
    """A time with its unit, in seconds."""

    def __call__(self, text: str) -> float:
        return Duration.parse(text) / 1e9


@dataclass(frozen=True)
class Bytes:
    """A size with its unit: ``64kB``."""

    def __call__(self, text: str) -> int:
        return int(Size.parse(text))


@dataclass(frozen=True)
class Name:
    """A word that something else looks up."""

    def __call__(self, text: str) -> str:
        if not text.strip():
            raise ValueError("the value is empty")
        return text


def _fields(options: type[Any]) -> tuple[Field[Any], ...]:
    return fields(options)

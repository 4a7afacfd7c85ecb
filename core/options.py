"""Options behind a name (``cassini:step=2,over=cubic``), told by the frozen dataclass that holds them.

A module that takes options has ``Options``, every field made by `option`: its default, what it means, and how its
text is read. From these follow the parser and the help.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import Field, field, fields
from typing import Any, TypeVar

from core.errors import RequestError
from core.text import quoted, shown

T = TypeVar("T")


class OptionError(RequestError):
    """No such option, or a value that it does not take; the message says what there is."""


def option(default: T, meaning: str, read: Callable[[str], T]) -> T:
    """A field of `Options`; ``read`` raises `ValueError` where a text is no value of it."""
    made: T = field(default=default, metadata={"meaning": meaning, "read": read})
    return made


def parse(options: type[T], text: str) -> T:
    """Read the options of ``text``, which is ``name`` or ``name:option=value,…``; raises `OptionError`."""
    name, _, rest = text.partition(":")
    known = {one.name: one for one in _fields(options)}
    values: dict[str, Any] = {}
    for item in filter(None, rest.split(",")):
        key, equals, value = item.partition("=")
        if key not in known or not equals or key in values:
            has = f" (once each): {meanings(options)}" if known else ", which has none"
            raise OptionError(f"{quoted(item)} in {quoted(text)} is no option of {name}{has}")
        try:
            values[key] = known[key].metadata["read"](value)
        except (ValueError, ZeroDivisionError) as error:
            raise OptionError(f"{key} in {quoted(text)}: {error}") from error
    return options(**values)


def effective(options: Any) -> dict[str, str]:
    """Every option with the value that it has, as written or by default."""
    return {one.name: str(getattr(options, one.name)) for one in _fields(type(options))}


def meanings(options: type[Any]) -> str:
    """Every option and what it means, in one line."""
    return ", ".join(f"{one.name} ({one.metadata['meaning']})" for one in _fields(options))


def number(low: float, high: float) -> Callable[[str], float]:
    """How a plain number between ``low`` and ``high`` is read."""

    def read(text: str) -> float:
        value = float(text)
        if not low <= value <= high:
            raise ValueError(f"{shown(text)} is not between {low:g} and {high:g}")
        return value

    return read


def one_of(*words: str) -> Callable[[str], str]:
    """How one of some words is read."""

    def read(text: str) -> str:
        if text not in words:
            raise ValueError(f"{shown(text)} is none of {', '.join(words)}")
        return text

    return read


def yes(text: str) -> bool:
    """How a ``yes`` or ``no`` is read."""
    if text not in ("yes", "no"):
        raise ValueError(f"{text!r} is neither yes nor no")
    return text == "yes"


def _fields(options: type[Any]) -> tuple[Field[Any], ...]:
    return fields(options)

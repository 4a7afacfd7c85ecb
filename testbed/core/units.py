"""Quantities as people write them: ``500mbit``, ``64kB``, ``1.5ms``, ``2%``.

A quantity is an ``int`` subclass that carries its unit in its type. It is parsed once at the edge, and never again a plain
number:

=============  =======================  =============================
type           unit                     written
=============  =======================  =============================
`Rate`         bit/s                    ``500mbit``, ``50Gbit/s``
`Size`         byte                     ``28MB``, ``64kB``, ``64KiB``
`Duration`     nanosecond               ``340ms``, ``1.5us``, ``2s``
=============  =======================  =============================

A value that is more than a number, or relative to another value, stays text (`Written`), and is also parsed once.

A number without a unit is refused, and so is ``mbps``: `tc` reads it as megabytes.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from decimal import Decimal
from typing import Any, ClassVar, Self

from testbed.core.errors import RequestError
from testbed.core.text import decimal, quoted, shown

_NUMBER = re.compile(r"\s*([+-]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?)\s*(\S*)\s*")


class UnitError(RequestError, ValueError):  # msgspec, too, needs a ValueError, to which it adds the field
    """A quantity that cannot be read; the message lists accepted forms."""


class Quantity(int):
    """A non-negative integer amount of one unit; `parse` reads it from text."""

    noun: ClassVar[str]
    examples: ClassVar[str]
    units: ClassVar[dict[str, int]]
    limit: ClassVar[int]
    written: ClassVar[tuple[tuple[str, int], ...]]  # units to write in, the largest first; the last is 1

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read ``text``; raises `UnitError` if it has no unit, a wrong one, or is out of range."""
        match = _NUMBER.fullmatch(text)
        if match is None:
            raise UnitError(f"{quoted(text)} is not a {cls.noun}. Write {cls.examples}.")
        number, unit = _decimal(match[1]), match[2]
        if not unit:
            raise UnitError(f"{quoted(text)} has no unit. Write {cls.examples}.")
        scale = cls.units.get(unit) or cls.units.get(unit.lower())
        if scale is None:
            in_bits = f"{unit[:-2].lower()}it"  # gbps: gbit
            hint = (
                f" (for bits, write {match[1]}{in_bits})"
                if unit.lower().endswith("bps") and in_bits in cls.units
                else ""
            )
            raise UnitError(f"{quoted(unit)} is not a unit of a {cls.noun}{hint}. Write {cls.examples}.")
        if number < 0:
            raise UnitError(f"the {cls.noun} {quoted(text)} is negative.")
        if not number.is_finite() or number > Decimal(cls.limit) / scale:  # a product could exceed Decimal's range
            raise UnitError(f"the {cls.noun} {quoted(text)} is too large to emulate.")
        return cls(int((number * scale).to_integral_value()))

    @property
    def exact(self) -> str:
        """Return this quantity as text that `parse` reads back to an equal one: ``107.012345ms``."""
        unit, scale = next((u, s) for u, s in self.written if self >= s or s == 1)
        return f"{(Decimal(int(self)) / scale).normalize():f}{unit}"


class Rate(Quantity):
    """A link rate in bit/s."""

    noun = "rate"
    examples = "500mbit or 10gbit"
    units: ClassVar[dict[str, int]] = {
        prefix + suffix: scale
        for prefix, scale in {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12}.items()
        for suffix in ("bit", "bit/s")
    }
    limit = 10**13
    written = (("gbit", 10**9), ("mbit", 10**6), ("kbit", 10**3), ("bit", 1))

    def __str__(self) -> str:
        return _shortest(int(self), [(10**9, "Gbit/s"), (10**6, "Mbit/s"), (10**3, "kbit/s")], "bit/s")


class Size(Quantity):
    """An amount of data in bytes."""

    noun = "size"
    examples = "28MB or 64kB"
    units: ClassVar[dict[str, int]] = {
        "b": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9, "tb": 10**12,
        "kib": 2**10, "mib": 2**20, "gib": 2**30,
    }  # fmt: skip
    limit = 10**15
    written = (("GB", 10**9), ("MB", 10**6), ("kB", 10**3), ("B", 1))

    def __str__(self) -> str:
        return _shortest(int(self), [(10**9, "GB"), (10**6, "MB"), (10**3, "kB")], "B")


class Duration(Quantity):
    """A span of time in nanoseconds."""

    noun = "time"
    examples = "340ms or 2s"
    units: ClassVar[dict[str, int]] = {
        "ns": 1, "us": 10**3, "µs": 10**3, "μs": 10**3, "ms": 10**6, "s": 10**9, "min": 60 * 10**9, "h": 3600 * 10**9,
    }  # fmt: skip
    limit = 10**15
    written = (("s", 10**9), ("ms", 10**6), ("us", 10**3), ("ns", 1))

    def __str__(self) -> str:
        return _shortest(int(self), [(10**9, "s"), (10**6, "ms"), (10**3, "us")], "ns")


class Written(str):
    """Text in its original form, with its value, which `read` computes once at construction; raises `UnitError`."""

    def __new__(cls, text: str) -> Self:
        made = super().__new__(cls, cls.to_canonical(text))
        made.read()
        return made

    @classmethod
    def to_canonical(cls, text: str) -> str:
        """``text`` in its canonical spelling; a kind with old spellings overrides this and `to_folder_form`."""
        return text

    @classmethod
    def to_folder_form(cls, text: str) -> str:
        """The old spelling of ``text``, which names of folders keep."""
        return text

    def read(self) -> None:
        """Parse the text and store the value; each kind overrides this."""
        raise NotImplementedError


class Share(Written):
    """A fraction: ``2%`` or ``0.02``."""

    value: float

    def read(self) -> None:
        self.value = parse_fraction(self)


def decoded(kind: type, value: Any) -> Any:
    """msgspec's hook for quantities and for `Written`."""
    if issubclass(kind, Quantity):
        if not isinstance(value, str):
            raise ValueError(f"a {kind.noun} needs a unit: write {shown(repr(value))} as text, such as {kind.examples}")
        return kind.parse(value)
    if issubclass(kind, Written):
        if not isinstance(value, str):
            raise ValueError(f"Expected `str`, got `{type(value).__name__}`")
        return kind(value)
    raise NotImplementedError(kind)


def _decimal(text: str) -> Decimal:
    try:
        return Decimal(text)
    except ArithmeticError:  # an exponent of twenty digits
        return Decimal("Infinity")


def _shortest(value: int, scales: list[tuple[int, str]], base: str) -> str:
    for scale, unit in scales:
        if value >= scale:
            return f"{decimal(value / scale, 6)} {unit}"
    return f"{value} {base}"


def rate_text(bps: float) -> str:
    """Format a rate in bit/s, rounded to six digits: ``156.25 Mbit/s``."""
    return _rounded(bps, _RATES, 6)


def size_text(count: float) -> str:
    """Format a number of bytes, rounded to three digits: ``2.88 MB``."""
    return _rounded(count, _SIZES, 3)


_RATES = ((1e12, "Tbit/s"), (1e9, "Gbit/s"), (1e6, "Mbit/s"), (1e3, "kbit/s"), (1.0, "bit/s"))
_SIZES = ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB"), (1.0, "B"))


def _rounded(value: float, scales: Sequence[tuple[float, str]], digits: int) -> str:
    """Never with an exponent: what rounds to a thousand of a unit is one of the next."""
    rounded = float(f"{value:.{digits}g}")
    scale, unit = next(((s, u) for s, u in scales if abs(rounded) >= s), scales[-1])
    rounded_text = f"{rounded / scale:.{digits}g}"
    return f"{float(rounded_text):.0f} {unit}" if "e+" in rounded_text else f"{rounded_text} {unit}"


def parse_fraction(text: str) -> float:
    """Read ``2%`` or ``0.02``; raises `UnitError` below 0 or above 1."""
    match = _NUMBER.fullmatch(text)
    if match is None or match[2] not in ("", "%"):
        raise UnitError(f"{quoted(text)} is not a fraction. Write 2% or 0.02.")
    value = float(match[1]) / (100 if match[2] else 1)
    if not 0 <= value <= 1:
        raise UnitError(f"the fraction {quoted(text)} is not between 0 and 100 %")
    return value

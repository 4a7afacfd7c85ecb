"""Check requested parameters of a custom congestion control against those that it declares."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from testbed.core.errors import RequestError
from testbed.core.runs.plan import CongestionControl
from testbed.core.text import quoted

MODINFO = re.compile(rb"\0parmtype=(\w+):([\w ]+)(?=\0)")  # of a module, as `module_param` writes it
BITS = {
    "byte": 8,
    "short": 16,
    "ushort": 16,
    "int": 32,
    "uint": 32,
    "hexint": 32,
    "long": 64,
    "ulong": 64,
    "ullong": 64,
}
SIGNED = ("short", "int", "long")
SWITCHES = ("bool", "invbool", "bint")


@dataclass(frozen=True)
class Range:
    """The range of a parameter of a whole-number type."""

    lowest: int
    highest: int

    @classmethod
    def from_bits(cls, bits: int, *, signed: bool) -> Range:
        return cls(-(1 << bits - 1), (1 << bits - 1) - 1) if signed else cls(0, (1 << bits) - 1)


def read_ranges(file: Path) -> dict[str, Range | None]:
    """Return the ranges of the parameters of a built module (``.ko``), by name; None for types without a range."""
    return {name.decode(): _range(kind.decode()) for name, kind in MODINFO.findall(b"\0" + file.read_bytes())}


def _range(kind: str) -> Range | None:
    if kind in SWITCHES:
        return Range(0, 1)
    return Range.from_bits(BITS[kind], signed=kind in SIGNED) if kind in BITS else None


def check(cc: CongestionControl, declared: Mapping[str, Range | None]) -> None:
    """Raises `RequestError` if a parameter of ``cc`` is not ``declared``, or its value does not fit."""
    for name, value in cc.constants.items():
        if name not in declared:
            has = f"It has {', '.join(sorted(declared))}." if declared else "It has none."
            raise RequestError(
                f"{quoted(cc.spec)}: {cc.name} has no parameter {quoted(name)}. {has} Declare it in {cc.source} "
                "(`module_param` in a module, a `const volatile` global in eBPF), or remove it."
            )
        fits = declared[name]
        if fits is not None and not fits.lowest <= value <= fits.highest:
            raise RequestError(
                f"{quoted(cc.spec)}: {name}={value} does not fit. Its type takes {fits.lowest} to {fits.highest}."
            )

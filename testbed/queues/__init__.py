"""Queueing disciplines of a bottleneck (``--queue fq_codel:target=5ms``), one file each.

A queue is a module with

``TITLE``
    its name, in a few words;
``KERNEL_NAME``
    its name in the kernel and in tc;
``MARKS``
    the position of its counters of marked packets (`Counter`); empty: it cannot mark;
``Options``
    a frozen dataclass of the options behind its name, see `testbed.core.options`;
``FORMAT``
    the encoding of its parameters (`Format`);
``parameters(options, buffer) -> dict``
    the parameters, in the kernel's units. Raises `ValueError` if the buffer or the options do not allow it.

A new file adds a queue. ``--queue ./mine.py`` names a custom one.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, cast

from testbed import registry
from testbed.core import options, system_text
from testbed.core.netlink_attributes import attribute, attributes
from testbed.core.text import quoted
from testbed.core.units import UnitError

(FIFO,) = registry.QUEUE.also  # the usual one: a FIFO, or RED where an ECN threshold is set
FEWEST_PACKETS = 2
LEAST_NS, LONGEST_NS = 2_000, 3_600 * 10**9  # of a time: units of 1,024 ns, and 32 bits of microseconds
LEAST_QUANTUM, LARGEST_QUANTUM = 256, 1 << 20  # bytes; the kernel's
U32 = struct.Struct("=I")


@dataclass(frozen=True)
class Buffer:
    """The buffer of a bottleneck, which a queue has."""

    size: int  # bytes
    frame_bytes: int  # of the largest packet
    marks: bool  # whether it is to mark packets rather than drop them

    @property
    def packets(self) -> int:
        """The largest packets that fit."""
        return max(FEWEST_PACKETS, self.size // self.frame_bytes)


@dataclass(frozen=True)
class Counter:
    """A number in the statistics of a queue: in the attribute at the end of ``path``, at byte ``offset``."""

    offset: int = 0
    path: tuple[int, ...] = ()


class Format(Protocol):
    """The encoding of a queue's parameters."""

    def encode(self, parameters: Mapping[str, int]) -> bytes:
        """Return the parameters as sent to the kernel."""
        ...

    def kept(self, parameters: Mapping[str, int]) -> dict[str, int]:
        """Return the parameters as the kernel keeps them, rounded."""
        ...

    def decode(self, shown: bytes) -> dict[str, int]:
        """Parse the parameters that the kernel shows."""
        ...


class Module(Protocol):
    """The interface of a file in this folder."""

    @property
    def TITLE(self) -> str: ...
    @property
    def KERNEL_NAME(self) -> str: ...
    @property
    def MARKS(self) -> tuple[Counter, ...]: ...
    @property
    def Options(self) -> type[Any]: ...
    @property
    def FORMAT(self) -> Format: ...
    def parameters(self, options: Any, buffer: Buffer) -> dict[str, int]: ...


def _unchanged(value: int) -> int:
    return value


@dataclass(frozen=True)
class Attributes:
    """Netlink attributes of 32 bits: by parameter, the attribute's number and the kernel's rounding."""

    numbers: Mapping[str, int]
    rounding: Mapping[str, Callable[[int], int]]

    def encode(self, parameters: Mapping[str, int]) -> bytes:
        return b"".join(attribute(self.numbers[name], U32.pack(value)) for name, value in parameters.items())

    def kept(self, parameters: Mapping[str, int]) -> dict[str, int]:
        return {name: self.rounding.get(name, _unchanged)(value) for name, value in parameters.items()}

    def decode(self, shown: bytes) -> dict[str, int]:
        found = attributes(shown)
        return {name: U32.unpack(found[number])[0] for name, number in self.numbers.items() if number in found}


def find(name: str) -> Module:
    """The queue called ``name``, or that of a file; raises `registry.UnknownContentError` or `registry.ContentError`."""
    return cast(Module, registry.find(registry.QUEUE, name))


def parameters(text: str, buffer: Buffer) -> dict[str, int]:
    """The arguments of the queue of ``text`` (``fq_codel:target=5ms``); raises `RequestError`."""
    module = find(system_text.name_of(text))
    chosen = options.parse(module.Options, text)
    try:
        return module.parameters(chosen, buffer)
    except ValueError as error:
        raise UnitError(f"{quoted(text)}: {error}") from error

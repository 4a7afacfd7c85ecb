"""Classify packets into bands by u32 filters, each of which compares one word of the IP header."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from testbed.core.netlink_attributes import attribute, attributes
from testbed.linux.rtnetlink import Tc, handle
from testbed.replay.bands import MOST, tos

ETH_P_IP, ETH_P_ALL = 0x0800, 0x0003
TCA_U32_CLASSID, TCA_U32_SEL = 1, 5
TC_U32_TERMINAL = 1
# struct tc_u32_sel: flags, offshift, nkeys, offmask (big endian), off, offoff, hoff, hmask (big endian)
SELECTOR = struct.Struct("=BBBx2sHhh4s")
KEY = struct.Struct(">II")  # struct tc_u32_key: mask and value; then where, and a mask of that
PLACE = struct.Struct("=ii")
# Above this IPv4 length a packet carries data: a pure ACK with every option has 80 bytes.
ACK_MAX_BYTES = 128


@dataclass(frozen=True)
class Rule:
    """Packets whose first word of the IP header is ``value`` under ``mask`` go to the priority queue ``minor``."""

    priority: int
    minor: int
    value: int
    mask: int


@dataclass(frozen=True)
class PureAcks:
    """Packets without payload go first."""

    def rules(self, bands: int) -> Iterator[Rule]:
        yield Rule(1, 1, 0, 0xFFFF & ~(ACK_MAX_BYTES - 1))


@dataclass(frozen=True)
class Dscp:
    """The DSCP (`testbed.replay.bands`) selects the priority queue. CS0 and unmarked packets go last."""

    levels: int

    def rules(self, bands: int) -> Iterator[Rule]:
        for level in range(1, self.levels):
            yield Rule(2, bands - level, tos(level) << 16, tos(MOST - 1) << 16)


Classify = PureAcks | Dscp


def filters(classify: Iterable[Classify], bands: int, major: int) -> Iterator[Tc]:
    """The messages that make them."""
    for each in classify:
        for rule in each.rules(bands):
            band = attribute(TCA_U32_CLASSID, struct.pack("=I", handle(major, rule.minor)))
            yield u32(handle(major), rule.priority, 0, rule.mask, rule.value, band)


def u32(parent: int, priority: int, at: int, mask: int, value: int, then: bytes, protocol: int = ETH_P_IP) -> Tc:
    """A filter that compares the word ``at`` an offset of the IP header; ``then``: attributes with the action for the packet."""
    selector = SELECTOR.pack(TC_U32_TERMINAL, 0, 1, bytes(2), 0, 0, 0, bytes(4))
    selector += KEY.pack(mask, value) + PLACE.pack(at, 0)
    info = priority << 16 | int.from_bytes(protocol.to_bytes(2, "big"), "little")
    return Tc("filter", "u32", 0, parent, then + attribute(TCA_U32_SEL, selector), info)


def asked(classify: Iterable[Classify], bands: int) -> list[str]:
    """The rules in the order in which packets meet them."""
    return [_describe_rule(rule) for each in classify for rule in each.rules(bands)]


def held(filters: Sequence[Tc]) -> list[str]:
    """Return the filters in words, as the kernel shows them, without the hash tables that it adds."""
    return [
        _filter_in_words(one) for one in sorted(filters, key=lambda one: (one.info >> 16, one.handle)) if has_keys(one)
    ]


def _describe_rule(rule: Rule) -> str:
    return f"priority {rule.priority}: {rule.value:#010x}/{rule.mask:#010x} at 0 to band {rule.minor}"


def has_keys(shown: Tc) -> bool:
    """Return True if a filter compares a header word; the kernel also shows hash tables that it adds."""
    return TCA_U32_SEL in attributes(shown.options)


def _filter_in_words(shown: Tc) -> str:
    fields = attributes(shown.options)
    flags, _, keys, *more = SELECTOR.unpack_from(fields[TCA_U32_SEL])
    mask, value = KEY.unpack_from(fields[TCA_U32_SEL], SELECTOR.size)
    at, moved = PLACE.unpack_from(fields[TCA_U32_SEL], SELECTOR.size + KEY.size)
    (target,) = struct.unpack("=I", fields.get(TCA_U32_CLASSID, bytes(4)))
    usual = (
        shown.kind == "u32" and flags == TC_U32_TERMINAL and keys == 1 and not moved and not any(map(any, _bytes(more)))
    )
    words = f"priority {shown.info >> 16}: {value:#010x}/{mask:#010x} at {at} to band {target & 0xFFFF}"
    return words if usual else f"{words} ({shown.kind}, {keys} keys, flags {flags})"


def _bytes(fields: Sequence[Any]) -> Iterator[bytes]:
    return (field if isinstance(field, bytes) else bytes([field != 0]) for field in fields)

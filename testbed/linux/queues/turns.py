"""Filters by which packets that arrive take turns: each matches bits of the IP header's identification, and redirects (``mirred``)."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping, Sequence

from testbed.core.netlink_attributes import attribute, attributes
from testbed.linux.queues.classify import KEY, PLACE, SELECTOR, TCA_U32_SEL, has_keys, u32
from testbed.linux.rtnetlink import Tc

CLSACT, CLSACT_PARENT = 0xFFFF0000, 0xFFFFFFF1  # parent of filters for arriving and leaving packets
INGRESS, EGRESS = 0xFFFFFFF2, 0xFFFFFFF3
TCA_U32_ACT, TCA_ACT_KIND, TCA_ACT_OPTIONS, TCA_MIRRED_PARMS = 7, 1, 2, 2
MIRRED = struct.Struct("=IIiiiiI")  # struct tc_mirred: index, capabilities, action, counts, mirred action, interface
STOLEN, INGRESS_REDIRECT = 4, 3
AT, UPPER = 4, 16  # offset in bytes of the header's word with the identification, and shift in bits to that half


def messages(bit: int, targets: Sequence[int]) -> Iterator[Tc]:
    """A packet whose number has *i* in the bits from ``bit`` on appears to come from the *i*-th interface."""
    yield Tc("qdisc", "clsact", CLSACT, CLSACT_PARENT, b"")
    mask = (len(targets) - 1) << UPPER + bit
    for number, index in enumerate(targets):
        does = attribute(TCA_MIRRED_PARMS, MIRRED.pack(0, 0, STOLEN, 0, 0, INGRESS_REDIRECT, index))
        action = attribute(TCA_ACT_KIND, b"mirred\0") + attribute(TCA_ACT_OPTIONS, does)
        yield u32(INGRESS, 1, AT, mask, number << UPPER + bit, attribute(TCA_U32_ACT, attribute(1, action)))


def asked(bit: int, names: Sequence[str]) -> list[str]:
    """Return the requested filters in words, in the form of `held`."""
    mask = (len(names) - 1) << UPPER + bit
    return [f"{number << UPPER + bit:#010x}/{mask:#010x} at {AT} to {name}" for number, name in enumerate(names)]


def held(filters: Sequence[Tc], names: Mapping[int, str]) -> list[str]:
    """Return the filters that the kernel shows, in words; ``names``: of interfaces, by index."""
    return [_describe_filter(one, names) for one in sorted(filters, key=lambda one: one.handle) if has_keys(one)]


def _describe_filter(shown: Tc, names: Mapping[int, str]) -> str:
    fields = attributes(shown.options)
    mask, value = KEY.unpack_from(fields[TCA_U32_SEL], SELECTOR.size)
    at, _ = PLACE.unpack_from(fields[TCA_U32_SEL], SELECTOR.size + KEY.size)
    actions = [attributes(each) for each in attributes(fields.get(TCA_U32_ACT, b"")).values()]
    led = [name for action in actions if (name := _target(action, names)) is not None]
    return f"{value:#010x}/{mask:#010x} at {at} to {' '.join(led)}"


def _target(action: Mapping[int, bytes], names: Mapping[int, str]) -> str | None:
    if action.get(TCA_ACT_KIND, b"").rstrip(b"\0") != b"mirred":
        return None
    parms = attributes(action[TCA_ACT_OPTIONS])[TCA_MIRRED_PARMS]
    *_, does, index = MIRRED.unpack_from(parms)
    return names.get(index, f"interface {index}") if does == INGRESS_REDIRECT else f"what is not redirected ({does})"

"""Netlink attributes as bytes: a length, a type and a payload, padded to four bytes (RFC 3549)."""

from __future__ import annotations

import struct

NLA_TYPE_MASK, NLA_F_NESTED = 0x3FFF, 0x8000


def attribute(kind: int, payload: bytes) -> bytes:
    """Encode a netlink attribute, padded to four bytes."""
    return struct.pack("=HH", 4 + len(payload), kind) + payload + bytes(-len(payload) % 4)


def attributes(data: bytes) -> dict[int, bytes]:
    """Payloads of the netlink attributes in ``data``, by type."""
    found = {}
    while len(data) >= 4:
        length, kind = struct.unpack_from("=HH", data)
        if length < 4:
            break
        found[kind & NLA_TYPE_MASK] = data[4:length]
        data = data[(length + 3) & ~3 :]
    return found

"""Packets as a pcapng file (IETF draft-ietf-opsawg-pcapng): Ethernet, nanoseconds, the direction of each packet."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from typing import BinaryIO, Literal

from testbed.linux.capture.packet_ring import Packet

SECTION, INTERFACE, PACKET = 0x0A0D0D0A, 1, 6
BYTE_ORDER, ETHERNET = 0x1A2B3C4D, 1
COMMENT, IF_NAME, IF_TSRESOL, EPB_FLAGS = 1, 2, 9, 2
NANOSECONDS = 9
DIRECTIONS = {"in": 1, "out": 2}
Direction = Literal["in", "out"]
Captured = tuple[int, Direction, Packet]  # with the number of its interface


def write(
    file: BinaryIO,
    interfaces: Sequence[str],
    packets: Iterable[Captured],
    snaplen: int,
    comment: str,
) -> int:
    """Write ``packets``, ordered by time; how many they were.

    Raises `OSError`.
    """
    file.write(_block(SECTION, struct.pack("=IHHq", BYTE_ORDER, 1, 0, -1) + _options((COMMENT, comment.encode()))))
    for name in interfaces:
        options = _options((IF_NAME, name.encode()), (IF_TSRESOL, bytes([NANOSECONDS])))
        file.write(_block(INTERFACE, struct.pack("=HHI", ETHERNET, 0, snaplen) + options))
    flags = {direction: _options((EPB_FLAGS, struct.pack("=I", value))) for direction, value in DIRECTIONS.items()}
    count = 0
    for interface, direction, packet in packets:
        head = struct.pack(
            "=IIIII", interface, packet.time_ns >> 32, packet.time_ns & 0xFFFFFFFF, len(packet.data), packet.length
        )
        file.write(_block(PACKET, head + _padded(packet.data) + flags[direction]))
        count += 1
    return count


def _block(kind: int, body: bytes) -> bytes:
    length = len(body) + 12
    return struct.pack("=II", kind, length) + body + struct.pack("=I", length)


def _options(*options: tuple[int, bytes]) -> bytes:
    return b"".join(struct.pack("=HH", code, len(value)) + _padded(value) for code, value in options) + bytes(4)


def _padded(value: bytes) -> bytes:
    return value + bytes(-len(value) % 4)

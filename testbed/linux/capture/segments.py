"""Split the packets that a host hands to its queue (GSO) into the segments that the kernel sends."""

from __future__ import annotations

import struct
from collections.abc import Iterator

from testbed.linux.capture.packet_ring import Packet

ETHERNET, TCP, UDP_HEADER = 14, 6, 8
LENGTH, NUMBER, PROTOCOL, CHECKSUM = 2, 4, 9, 10  # offsets in the IPv4 header
SEQUENCE, SIZE, FLAGS = 4, 12, 13  # offsets in the TCP header
UDP_LENGTH = 4  # offset in the UDP header
FIN, PSH, CWR = 0x01, 0x08, 0x80


def split(packet: Packet, snaplen: int) -> Iterator[Packet]:
    """Yield the segments of ``packet``, an IPv4 packet of TCP or UDP, at most ``snaplen`` bytes each; itself if
    unsegmented.

    They contain the captured part of their payload, which is often only in the first one. Checksums of TCP and UDP are
    not computed again.
    """
    if not packet.segment_bytes:
        yield packet
        return
    data = packet.data
    transport = ETHERNET + 4 * (data[ETHERNET] & 0xF)
    by_tcp = data[ETHERNET + PROTOCOL] == TCP
    header = transport + (4 * (data[transport + SIZE] >> 4) if by_tcp else UDP_HEADER)
    payload = packet.length - header
    for index, at in enumerate(range(0, payload, packet.segment_bytes)):
        size = min(packet.segment_bytes, payload - at)
        own = bytearray(data[:header])
        _put(own, "H", ETHERNET + LENGTH, header - ETHERNET + size)
        _put(own, "H", ETHERNET + NUMBER, _get(own, "H", ETHERNET + NUMBER) + index)
        if by_tcp:
            _put(own, "I", transport + SEQUENCE, _get(own, "I", transport + SEQUENCE) + at)
            if index:
                own[transport + FLAGS] &= ~CWR
            if at + size < payload:
                own[transport + FLAGS] &= ~(FIN | PSH)
        else:
            _put(own, "H", transport + UDP_LENGTH, UDP_HEADER + size)
        _put(own, "H", ETHERNET + CHECKSUM, 0)
        _put(own, "H", ETHERNET + CHECKSUM, _checksum(own[ETHERNET:transport]))
        kept = bytes(own) + data[header + at : header + at + size]
        yield Packet(packet.time_ns, header + size, kept[:snaplen])


def _get(data: bytearray, kind: str, at: int) -> int:
    return int(struct.unpack_from(f">{kind}", data, at)[0])


def _put(data: bytearray, kind: str, at: int, value: int) -> None:
    struct.pack_into(f">{kind}", data, at, value & (1 << 8 * struct.calcsize(f">{kind}")) - 1)


def _checksum(header: bytearray) -> int:
    """Of an IP header (RFC 1071)."""
    total = int(sum(struct.unpack(f">{len(header) // 2}H", header)))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return 0xFFFF - total

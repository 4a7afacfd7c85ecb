"""Captured packets: read from a ring's frames, split into segments, written as pcapng."""

from __future__ import annotations

import io
import struct

import pytest

from testbed.linux.capture import packet_ring, pcapng
from testbed.linux.capture.packet_ring import HEADER, OFFSET, VNET, Packet
from testbed.linux.capture.segments import _checksum, split

MSS, PAYLOAD = 1448, 3000
HEADERS = 14 + 20 + 32


def tcp(payload: int, flags: int, segment: int, kept: int = 96) -> Packet:
    """A packet with a payload of numbers."""
    ethernet = bytes(12) + b"\x08\x00"
    ip = struct.pack(">BBHHHBBH4s4s", 0x45, 2, 20 + 32 + payload, 0xFFFF, 0, 64, 6, 0, bytes([10, 0, 0, 1]), bytes(4))
    header = struct.pack(">HHIIBBHHH", 5001, 5002, 2**32 - 1000, 7, 8 << 4, flags, 1, 0, 0) + bytes(12)
    data = ethernet + ip + header + bytes(number % 251 for number in range(payload))
    return Packet(10**18 + 5, len(data), data[:kept], segment)


def test_segments_are_those_that_the_kernel_makes() -> None:
    """Lengths, numbers, sequence numbers modulo 2^32, checksums; CWR on the first, PSH and FIN on the last."""
    whole = tcp(PAYLOAD, 0x80 | 0x10 | 0x08 | 0x01, MSS, kept=10_000)
    segments = list(split(whole, 1514))
    assert [segment.length - HEADERS for segment in segments] == [MSS, MSS, PAYLOAD - 2 * MSS]
    assert b"".join(segment.data[HEADERS:] for segment in segments) == whole.data[HEADERS:]
    assert {segment.time_ns for segment in segments} == {whole.time_ns}
    for index, segment in enumerate(segments):
        length, number = struct.unpack_from(">HH", segment.data, 14 + 2)
        (sequence,) = struct.unpack_from(">I", segment.data, 14 + 20 + 4)
        assert (14 + length, number) == (segment.length, (0xFFFF + index) % 2**16)
        assert sequence == (2**32 - 1000 + index * MSS) % 2**32
        assert _checksum(bytearray(segment.data[14:34])) == 0
    assert [segment.data[14 + 20 + 13] for segment in segments] == [0x90, 0x10, 0x19]


def test_only_what_was_captured_of_the_payload_is_kept() -> None:
    segments = list(split(tcp(PAYLOAD, 0x10, MSS), 96))
    assert [len(segment.data) for segment in segments] == [96, HEADERS, HEADERS]
    assert list(split(tcp(PAYLOAD, 0x10, 0), 96)) == [tcp(PAYLOAD, 0x10, 0)]


def test_datagrams_have_their_own_length() -> None:
    ip = struct.pack(">BBHHHBBH8s", 0x45, 0, 28 + 250, 1, 0, 64, 17, 0, bytes(8))
    data = bytes(12) + b"\x08\x00" + ip + struct.pack(">HHHH", 1, 2, 8 + 250, 0) + bytes(250)
    segments = list(split(Packet(0, len(data), data, 100), 1514))
    assert [struct.unpack_from(">H", segment.data, 38)[0] for segment in segments] == [108, 108, 58]


@pytest.mark.parametrize("snaplen", [64, 96, 1514, 65_000])
def test_frames_of_a_ring(snaplen: int) -> None:
    """As the kernel lays them out (TPACKET_V2 with PACKET_VNET_HDR)."""
    stride = packet_ring.frame_bytes(snaplen)
    assert stride % 16 == 0 and stride >= OFFSET + snaplen and packet_ring.blocks(snaplen, 1) == 1
    packets = [tcp(PAYLOAD, 0x10, MSS, kept=snaplen), tcp(10, 0x10, 0, kept=snaplen)]
    file = io.BytesIO()
    for packet in packets:
        told = HEADER.pack(
            1, packet.length, len(packet.data), OFFSET, OFFSET + 14, *divmod(packet.time_ns, 10**9), 0, 0
        )
        told = told.ljust(OFFSET - VNET.size, b"\0") + VNET.pack(0, 1, HEADERS, packet.segment_bytes, 0, 0)
        file.write((told + packet.data).ljust(stride, b"\0"))
    file.seek(0)
    assert list(packet_ring.frames(file, snaplen)) == packets


def test_pcapng_to_the_byte() -> None:
    """A section, two interfaces in nanoseconds, and a packet of 5 bytes that came in: as the format's draft has them."""
    file = io.BytesIO()
    packet = Packet((1 << 32) + 2, 60, b"abcde")
    assert pcapng.write(file, ["a before", "a after"], [(1, "in", packet)], 96, "t") == 1
    blocks = []
    data = file.getvalue()
    while data:
        kind, length = struct.unpack_from("=II", data)
        assert length % 4 == 0 and data[length - 4 : length] == struct.pack("=I", length)
        blocks.append((kind, data[8 : length - 4]))
        data = data[length:]
    assert [kind for kind, _ in blocks] == [0x0A0D0D0A, 1, 1, 6]
    assert blocks[0][1] == struct.pack("=IHHq", 0x1A2B3C4D, 1, 0, -1) + struct.pack("=HH4sHH", 1, 1, b"t", 0, 0)
    assert blocks[1][1] == struct.pack("=HHI", 1, 0, 96) + struct.pack(
        "=HH8sHH4sHH", 2, 8, b"a before", 9, 1, b"\x09", 0, 0
    )
    assert blocks[3][1] == struct.pack("=IIIII8s", 1, 1, 2, 5, 60, b"abcde") + struct.pack("=HHIHH", 2, 4, 1, 0, 0)

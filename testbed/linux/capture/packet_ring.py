"""A packet socket (packet(7)) with a memory-mapped ring: what leaves by one interface, with nanosecond times.

The ring has frames of one size (TPACKET_V2), so that no timer of the kernel hands blocks over. `Ring.drain` copies filled frames to a
file as they are; `frames` reads such a file. Standard library only: the process that drains starts fast.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import socket
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import BinaryIO

from testbed.linux import netns

ETH_P_ALL = 0x0003
SOL_PACKET, PACKET_RX_RING, PACKET_STATISTICS, PACKET_VERSION, PACKET_VNET_HDR = 263, 5, 6, 10, 15
TPACKET_V2, KERNEL = 1, 0
BLOCK = 1 << 16
HEADER = struct.Struct("=IIIHHIIHH4x")  # struct tpacket2_hdr: status, length, captured, mac, net, s, ns, VLAN
VNET = struct.Struct(
    "=BBHHHH"
)  # struct virtio_net_hdr, in front of the packet: flags, GSO type, length of headers, GSO size, …
OFFSET = 76  # of a packet in its frame, behind its headers
OUTGOING = 4  # PACKET_OUTGOING
SO_ATTACH_FILTER = 26
RETURN, LOAD_BYTE, EQUAL = 0x06, 0x30, 0x15  # of classic BPF
PACKET_TYPE = 0xFFFFF000 + 4  # SKF_AD_OFF + SKF_AD_PKTTYPE


def frame_bytes(snaplen: int) -> int:
    """Bytes of a frame that holds ``snaplen`` bytes of a packet."""
    return -(-(OFFSET + snaplen) // 16) * 16


def blocks(snaplen: int, packets: int) -> int:
    """Blocks of a ring that holds ``packets`` packets at least; a frame is within one block."""
    return -(-packets // (BLOCK // frame_bytes(snaplen)))


@dataclass(frozen=True)
class Packet:
    """One packet that left an interface."""

    time_ns: int  # since the epoch
    length: int  # on the link, without preamble and checksum
    data: bytes  # the first bytes
    segment_bytes: int = (
        0  # payload of each segment into which the kernel splits it before the link (GSO); 0: it is one
    )


def opened(namespace: int, device: str, snaplen: int, packets: int) -> socket.socket:
    """A socket that captures packets sent by ``device``, after `accept`. Its ring holds ``packets`` packets. Raises `OSError`."""
    with netns.entered(namespace):
        sock = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)  # receives no packets until bound
    try:
        sock.setsockopt(SOL_PACKET, PACKET_VERSION, TPACKET_V2)
        sock.setsockopt(SOL_PACKET, PACKET_VNET_HDR, 1)
        accept(sock, 0)
        count, stride = blocks(snaplen, packets), frame_bytes(snaplen)
        sock.setsockopt(
            SOL_PACKET, PACKET_RX_RING, struct.pack("=IIII", BLOCK, count, stride, count * (BLOCK // stride))
        )
        sock.bind((device, ETH_P_ALL))
    except BaseException:
        sock.close()
        raise
    return sock


def accept(sock: socket.socket, most_bytes: int) -> None:
    """Take so many bytes of each packet that leaves from now on; 0: take no packet."""
    program = [
        (LOAD_BYTE, 0, 0, PACKET_TYPE),
        (EQUAL, 0, 1, OUTGOING),
        (RETURN, 0, 0, most_bytes),
        (RETURN, 0, 0, 0),
    ]
    code = b"".join(struct.pack("=HBBI", *step) for step in program)
    held = ctypes.create_string_buffer(code)
    sock.setsockopt(socket.SOL_SOCKET, SO_ATTACH_FILTER, struct.pack("@HP", len(program), ctypes.addressof(held)))


def dropped(sock: socket.socket) -> int:
    """Packets that found the ring full, since this was last asked."""
    lost: int = struct.unpack("=II", sock.getsockopt(SOL_PACKET, PACKET_STATISTICS, 8))[1]
    return lost


class Ring:
    """The ring of a socket (`opened`), memory-mapped. User-mode Linux does not survive a copy (`fork`) of a process that has one."""

    def __init__(self, fd: int, snaplen: int, packets: int) -> None:
        self.stride = frame_bytes(snaplen)
        self.per_block = BLOCK // self.stride
        count = blocks(snaplen, packets)
        self.count = count * self.per_block
        self.memory = mmap.mmap(fd, count * BLOCK, mmap.MAP_SHARED, mmap.PROT_READ | mmap.PROT_WRITE)
        self.at = 0  # the frame that the kernel fills next

    def drain(self, to: int) -> int:
        """Append all filled frames to the file ``to``, and give them back to the kernel; how many bytes they were. Raises `OSError`.

        Only plain system calls: a buffered write of Python's reads the clock, which moves virtual time.
        """
        found = 0
        step = self.stride // 4
        with memoryview(self.memory) as ring, ring.cast("I") as words:
            while True:
                block, first = divmod(self.at, self.per_block)
                begin, end = (block * BLOCK + number * self.stride for number in (first, self.per_block))
                status = words[begin // 4 : end // 4 : step].tolist()
                ready = next((number for number, word in enumerate(status) if word == KERNEL), len(status))
                if not ready:
                    return found
                write(to, ring[begin : begin + ready * self.stride])
                words[begin // 4 : begin // 4 + ready * step : step] = memoryview(bytes(4 * ready)).cast("I")
                self.at = (self.at + ready) % self.count
                found += ready * self.stride


def write(to: int, data: memoryview) -> None:
    """Write all of ``data`` to descriptor ``to``. Raises `OSError`."""
    while data:
        data = data[os.write(to, data) :]


def frames(file: BinaryIO, snaplen: int) -> Iterator[Packet]:
    """The packets of a file of frames (`Ring.drain`), in their order."""
    stride = frame_bytes(snaplen)
    while frame := file.read(stride):
        _, length, captured, mac, _, seconds, ns, _, _ = HEADER.unpack_from(frame)
        *_, segment, _, _ = VNET.unpack_from(frame, mac - VNET.size)
        yield Packet(seconds * 10**9 + ns, length, frame[mac : mac + captured], segment)

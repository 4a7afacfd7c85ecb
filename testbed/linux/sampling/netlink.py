"""Netlink for who asks the same again and again: questions at once, answers where they were the last time; standard library only.

`testbed.linux.rtnetlink` asks anything once; at 256 flows every 10 ms that would cost more than the jobs.
"""

from __future__ import annotations

import ctypes
import socket
import struct
from collections.abc import Sequence

from core.layouts import NLM_F_ECHO, NLM_F_REQUEST, RTM_NEWQDISC, SOCK_DIAG_BY_FAMILY
from testbed.linux import netns
from testbed.linux.loading.bpfsys import libc

MOST_ANSWER_BYTES = 16_384
ANSWER = struct.Struct("=IH")
FLOW_ANSWER_BYTES = 2048  # at most; 500 are usual
MOST_AT_ONCE = 64  # questions, whose answers fit into a socket's buffer
Data = bytes | bytearray


class Netlink:
    """One socket in one namespace."""

    def __init__(self, namespace: int, family: int) -> None:
        with netns.entered(namespace):
            self.socket = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, family)
            self.socket.bind((0, 0))

    def ask(self, question: bytes) -> bytes:
        """The payload of the answer (the message that would create the qdisc); empty if the kernel says there is none."""
        self.socket.send(question)
        data = self.socket.recv(MOST_ANSWER_BYTES)
        return data[16:] if ANSWER.unpack_from(data)[1] == RTM_NEWQDISC else b""

    def ask_all(self, questions: Sequence[bytes], answers: Answers) -> list[Data]:
        """The payloads of all answers, by two system calls: each has its price."""
        self.socket.send(b"".join(questions))
        return answers.take(self.socket.fileno(), len(questions))


class _Piece(ctypes.Structure):
    """``struct iovec``"""

    _fields_ = (("base", ctypes.c_void_p), ("length", ctypes.c_size_t))


class _Message(ctypes.Structure):
    """``struct msghdr``"""

    _fields_ = (
        ("name", ctypes.c_void_p), ("name_length", ctypes.c_uint32), ("pieces", ctypes.c_void_p), ("piece_count", ctypes.c_size_t),
        ("control", ctypes.c_void_p), ("control_length", ctypes.c_size_t), ("flags", ctypes.c_int),
    )  # fmt: skip


class _Header(ctypes.Structure):
    """``struct mmsghdr``"""

    _fields_ = (("message", _Message), ("length", ctypes.c_uint))


class Answers:
    """Room for the answers to several questions."""

    def __init__(self) -> None:
        self.room = bytearray(MOST_AT_ONCE * FLOW_ANSWER_BYTES)
        begin = ctypes.addressof((ctypes.c_char * len(self.room)).from_buffer(self.room))
        starts = range(begin, begin + len(self.room), FLOW_ANSWER_BYTES)
        self._pieces = (_Piece * MOST_AT_ONCE)(*(_Piece(start, FLOW_ANSWER_BYTES) for start in starts))
        self._headers = (_Header * MOST_AT_ONCE)()
        for piece, header in zip(self._pieces, self._headers, strict=True):
            header.message = _Message(None, 0, ctypes.addressof(piece), 1)
        self._receive = libc().recvmmsg

    def take(self, descriptor: int, count: int) -> list[Data]:
        """The payloads of the next ``count`` answers, in their order; empty if the kernel says there is none."""
        if self._receive(descriptor, self._headers, count, 0, None) != count:
            raise OSError(ctypes.get_errno(), "recvmmsg")
        room, found = self.room, list[Data]()
        for begin in range(0, count * FLOW_ANSWER_BYTES, FLOW_ANSWER_BYTES):
            length, kind = ANSWER.unpack_from(room, begin)
            if length > FLOW_ANSWER_BYTES:
                raise RuntimeError(f"the kernel answers with {length} bytes where {FLOW_ANSWER_BYTES} were expected")
            found.append(room[begin + 16 : begin + length] if kind == SOCK_DIAG_BY_FAMILY else b"")
        return found


def question(kind: int, body: bytes) -> bytes:
    """One for a single qdisc is answered only if an echo is asked for."""
    message = struct.pack("=IHHII", 16 + len(body), kind, NLM_F_REQUEST | NLM_F_ECHO, 1, 0) + body
    return message.ljust((len(message) + 3) & ~3, b"\0")


def attributes(data: Data, start: int, end: int) -> dict[int, tuple[int, int]]:
    """Netlink attributes in ``data[start:end]``: type → (offset, length) of the payload."""
    found = {}
    while start + 4 <= end:
        length, kind = struct.unpack_from("=HH", data, start)
        if length < 4:
            break
        found[kind & 0x3FFF] = (start + 4, length - 4)
        start += (length + 3) & ~3
    return found


class Field:
    """Where one attribute lies in the kernel's answers to one question: looked for once.

    The kernel lays out every answer alike; should it not, the attribute's own header
    tells, and it is looked for again.
    """

    def __init__(self, start: int, *path: int) -> None:
        self.start, self.path = start, path
        self.at, self.header = 0, b""

    def find(self, data: Data) -> int | None:
        """Offset of the payload, or None if the answer has no such attribute."""
        if self.at and data[self.at - 4 : self.at] == self.header:
            return self.at
        start, end = self.start, len(data)
        for kind in self.path:
            found = attributes(data, start, end).get(kind)
            if found is None:
                return None
            start, end = found[0], found[0] + found[1]
        self.at, self.header = start, bytes(data[start - 4 : start])
        return start

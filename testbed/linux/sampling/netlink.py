"""Netlink for repeated queries: all questions in one message, answers parsed at known offsets; standard library only.

`testbed.linux.rtnetlink` sends any query once. At 256 flows every 10 ms that would cost more than the jobs. In user-mode
Linux each system call costs as much as forwarding ten packets.
"""

from __future__ import annotations

import ctypes
import itertools
import socket
import struct
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from testbed.core.layouts import NLM_F_ECHO, NLM_F_REQUEST, RTM_NEWQDISC, SOCK_DIAG_BY_FAMILY
from testbed.linux import netns
from testbed.linux.sampling.ring import Ring, Step

HEADER = struct.Struct("=IHxxI")  # length, type, sequence number
HEADER_BYTES = 16
ANSWER_BYTES = 1024  # largest answer; 500 bytes are usual
ANSWERED = (SOCK_DIAG_BY_FAMILY, RTM_NEWQDISC)
MOST_AT_ONCE = 64  # questions whose answers fit into a socket's buffer


@dataclass(frozen=True)
class Question:
    """A message, and the socket that sends it."""

    socket: socket.socket
    message: bytes


def opened(namespace: int, family: int) -> socket.socket:
    """A socket in one namespace."""
    with netns.entered(namespace):
        found = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, family)
        found.bind((0, 0))
    return found


def message(kind: int, body: bytes) -> bytes:
    """Return a message as bytes. A request for a single qdisc is answered only with the echo flag."""
    whole = struct.pack("=IHHII", HEADER_BYTES + len(body), kind, NLM_F_REQUEST | NLM_F_ECHO, 0, 0) + body
    return whole.ljust((len(whole) + 3) & ~3, b"\0")


class Questions:
    """Questions that are asked together: by one system call where there is io_uring, else by several."""

    def __init__(self, questions: Sequence[Question]) -> None:
        self._count = len(questions)
        self._room = bytearray(max(1, self._count) * ANSWER_BYTES)
        self._groups = list(_grouped(questions))
        self._sent = [ctypes.create_string_buffer(group.messages, len(group.messages)) for group in self._groups]
        try:
            self._exchange = Ring(list(self._steps())).go
        except OSError:  # an older kernel, or a container that forbids it
            self._exchange = self._one_by_one

    def ask(self) -> list[bytes]:
        """The payloads of all answers, in the order of the questions; empty if the kernel reports that there is none."""
        self._exchange()
        room, read, found = bytes(self._room), HEADER.unpack_from, []
        for number, begin in enumerate(range(0, ANSWER_BYTES * self._count, ANSWER_BYTES)):
            length, kind, answered = read(room, begin)
            if length > ANSWER_BYTES or answered != number:
                raise RuntimeError(f"question {number} is answered by {length} bytes for question {answered}")
            found.append(room[begin + HEADER_BYTES : begin + length] if kind in ANSWERED else b"")
        return found

    def _steps(self) -> Iterator[Step]:
        room = ctypes.addressof((ctypes.c_char * len(self._room)).from_buffer(self._room))
        for group, sent in zip(self._groups, self._sent, strict=True):
            descriptor = group.socket.fileno()
            yield Step(descriptor, ctypes.addressof(sent), len(sent), out=True)
            for number in group.numbers:
                yield Step(descriptor, room + ANSWER_BYTES * number, ANSWER_BYTES, out=False)

    def _one_by_one(self) -> None:
        room = memoryview(self._room)
        for group in self._groups:
            group.socket.send(group.messages)
            for number in group.numbers:
                group.socket.recv_into(room[ANSWER_BYTES * number :], ANSWER_BYTES)


@dataclass(frozen=True)
class _Group:
    """Messages that one socket is sent at once, and the numbers of their questions."""

    socket: socket.socket
    messages: bytes
    numbers: range


def _grouped(questions: Sequence[Question]) -> Iterator[_Group]:
    """Those that follow each other and go to one socket."""
    first = 0
    for asked, several in itertools.groupby(questions, lambda question: question.socket):
        while some := list(itertools.islice(several, MOST_AT_ONCE)):
            numbers = range(first, first + len(some))
            first = numbers.stop
            numbered = (_numbered(each.message, number) for each, number in zip(some, numbers, strict=True))
            yield _Group(asked, b"".join(numbered), numbers)


def _numbered(whole: bytes, number: int) -> bytes:
    """With a sequence number, which the answer has, too."""
    return whole[:8] + number.to_bytes(4, sys.byteorder) + whole[12:]


def attributes(data: bytes, start: int, end: int) -> dict[int, tuple[int, int]]:
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
    """The position of one attribute in the kernel's answers to one question; searched once.

    All answers of the kernel have the same layout. If the attribute's header is not at that position, it is searched again.
    """

    def __init__(self, start: int, *path: int) -> None:
        self.start, self.path = start, path
        self.at, self.header = 0, b""

    def find(self, data: bytes) -> int | None:
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

"""Sends and receives of several sockets by one system call: the needed part of io_uring(7); standard library only."""

from __future__ import annotations

import ctypes
import mmap
import os
import struct
from collections.abc import Sequence
from dataclasses import dataclass

from testbed.core.layouts import (
    IORING_CQE,
    IORING_ENTER_GETEVENTS,
    IORING_OFF_SQES,
    IORING_OP_RECV,
    IORING_OP_SEND,
    IORING_PARAMETERS,
    IORING_SQE,
    SYS_IO_URING_ENTER,
    SYS_IO_URING_SETUP,
)
from testbed.linux.loading.bpfsys import libc

SQE_BYTES, CQE_BYTES = IORING_SQE.size or 0, IORING_CQE.size or 0
PLACES = IORING_PARAMETERS.reader(
    "sq_entries", "cq_entries", "sq_off.tail", "sq_off.ring_mask", "sq_off.array",
    "cq_off.head", "cq_off.tail", "cq_off.cqes",
)  # fmt: skip
SQE = IORING_SQE.reader("opcode", "fd", "addr", "len")  # all else is 0
RESULT, _ = IORING_CQE.members["res"]
NUMBER = struct.Struct("=I")


@dataclass(frozen=True)
class Step:
    """Memory to send from (``out``) or to receive into; it must not move."""

    socket: int
    memory: int  # address
    size: int
    out: bool


class Ring:
    """A fixed sequence of I/O steps, repeated by one system call each time.

    Raises `OSError` if the kernel has no io_uring, or does not permit it.
    """

    def __init__(self, steps: Sequence[Step]) -> None:
        self._count = len(steps)
        parameters = ctypes.create_string_buffer(IORING_PARAMETERS.size or 0)
        self._ring = _call(SYS_IO_URING_SETUP, max(1, self._count), parameters)
        entries, completions, self._tail_at, mask_at, self._array_at, self._head_at, self._done_at, cqes = (
            PLACES.unpack_from(parameters)
        )
        # Both rings are in one mapping (since Linux 5.4).
        size = max(self._array_at + NUMBER.size * entries, cqes + CQE_BYTES * completions)
        self._shared = mmap.mmap(self._ring, size)
        self._steps = mmap.mmap(self._ring, SQE_BYTES * entries, offset=IORING_OFF_SQES)
        for number, step in enumerate(steps):
            operation = IORING_OP_SEND if step.out else IORING_OP_RECV
            SQE.pack_into(self._steps, SQE_BYTES * number, operation, step.socket, step.memory, step.size)
        (self._mask,) = NUMBER.unpack_from(self._shared, mask_at)
        self._order = b"".join(map(NUMBER.pack, range(self._count)))
        self._tail = 0
        # The results, and between them other things.
        done = memoryview(self._shared)[cqes : cqes + CQE_BYTES * completions].cast("i")
        self._results = done[RESULT // done.itemsize :: CQE_BYTES // done.itemsize]

    def go(self) -> None:
        """Take all steps; raises `OSError` for one that failed."""
        begin = self._tail & self._mask
        until_the_end = NUMBER.size * (self._mask + 1 - begin)
        head, rest = self._order[:until_the_end], self._order[until_the_end:]
        at = self._array_at + NUMBER.size * begin
        self._shared[at : at + len(head)] = head
        self._shared[self._array_at : self._array_at + len(rest)] = rest
        self._tail = (self._tail + self._count) & 0xFFFFFFFF
        NUMBER.pack_into(self._shared, self._tail_at, self._tail)
        submitted = _call(SYS_IO_URING_ENTER, self._ring, self._count, self._count, IORING_ENTER_GETEVENTS, None, 0)
        if submitted != self._count:
            raise RuntimeError(f"io_uring took {submitted} of {self._count} steps")
        NUMBER.pack_into(self._shared, self._head_at, *NUMBER.unpack_from(self._shared, self._done_at))
        if (worst := min(self._results, default=0)) < 0:
            raise OSError(-worst, os.strerror(-worst))


def _call(number: int, *arguments: object) -> int:
    result = libc().syscall(number, *arguments)
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return int(result)

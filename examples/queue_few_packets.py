"""A custom queue: a FIFO of a few packets of any size (Linux's pfifo).

Run it next to another one, from this folder::

    mltcp run --queue ./queue_few_packets.py:packets=20 --jobs 2
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass

from testbed.core.options import Integer, option
from testbed.queues import Buffer, Counter

TITLE = "a FIFO of a few packets"
KERNEL_NAME = "pfifo"
MARKS: tuple[Counter, ...] = ()  # it cannot mark
LIMIT = struct.Struct("=I")  # struct tc_fifo_qopt


@dataclass(frozen=True)
class Options:
    packets: int = option(20, "packets that may wait (default: 20)", Integer(1, 100_000))


class _Limit:
    """One number rather than netlink attributes."""

    def encode(self, parameters: Mapping[str, int]) -> bytes:
        return LIMIT.pack(parameters["limit_packets"])

    def kept(self, parameters: Mapping[str, int]) -> dict[str, int]:
        return dict(parameters)

    def decode(self, shown: bytes) -> dict[str, int]:
        return {"limit_packets": LIMIT.unpack_from(shown)[0]}


FORMAT = _Limit()


def parameters(options: Options, buffer: Buffer) -> dict[str, int]:
    return {"limit_packets": options.packets}

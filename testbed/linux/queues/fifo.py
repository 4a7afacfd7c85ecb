"""A FIFO with a limit in bytes."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from testbed.linux.queues.tree import Leaf
from testbed.linux.rtnetlink import Tc

LIMIT = struct.Struct("=I")  # struct tc_fifo_qopt


@dataclass(frozen=True)
class Fifo(Leaf):
    """``bfifo``; what does not fit is dropped."""

    kind: ClassVar[str] = "bfifo"
    limit_bytes: int
    made_above: bool = False  # a token bucket makes its own

    @property
    def own(self) -> bool:
        return not self.made_above

    @property
    def buffer_bytes(self) -> int:
        return self.limit_bytes

    def options(self) -> bytes:
        return LIMIT.pack(self.limit_bytes)

    def asked(self, major: int) -> dict[str, Any]:
        return {"limit_bytes": self.limit_bytes}

    def held(self, options: bytes, classes: Sequence[Tc], filters: Sequence[Tc]) -> dict[str, Any]:
        (limit,) = LIMIT.unpack_from(options)
        return {"limit_bytes": limit}

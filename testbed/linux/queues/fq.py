"""Fair queueing with pacing, as many hosts have it at their interface."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from testbed.core.netlink_attributes import attribute, attributes
from testbed.linux.queues.tree import Leaf
from testbed.linux.rtnetlink import Tc

TCA_FQ_PLIMIT, TCA_FQ_FLOW_PLIMIT, TCA_FQ_RATE_ENABLE = 1, 2, 5
U32 = struct.Struct("=I")


@dataclass(frozen=True)
class Fq(Leaf):
    """``fq``: sockets take turns, and each leaves at the rate at which TCP paces it. The limits are the kernel's own."""

    kind: ClassVar[str] = "fq"
    limit_packets: int = 10_000
    flow_limit_packets: int = 100
    frame_bytes: int = 1514  # of the largest frame; converts the packet limit to bytes

    @property
    def buffer_bytes(self) -> int:
        return self.limit_packets * self.frame_bytes

    def options(self) -> bytes:
        values = {TCA_FQ_PLIMIT: self.limit_packets, TCA_FQ_FLOW_PLIMIT: self.flow_limit_packets, TCA_FQ_RATE_ENABLE: 1}
        return b"".join(attribute(kind, U32.pack(value)) for kind, value in values.items())

    def asked(self, major: int) -> dict[str, Any]:
        return {"limit_packets": self.limit_packets, "flow_limit_packets": self.flow_limit_packets, "paces": True}

    def held(self, options: bytes, classes: Sequence[Tc], filters: Sequence[Tc]) -> dict[str, Any]:
        fields = attributes(options)
        limit, flow_limit, paces = (
            U32.unpack(fields[kind])[0] for kind in (TCA_FQ_PLIMIT, TCA_FQ_FLOW_PLIMIT, TCA_FQ_RATE_ENABLE)
        )
        return {"limit_packets": limit, "flow_limit_packets": flow_limit, "paces": bool(paces)}

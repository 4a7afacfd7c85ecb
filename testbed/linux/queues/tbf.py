"""The bottleneck: a token bucket whose rate, bucket and buffer are set in bytes.

TBF is used at the bottleneck only (`docs/explanation/statistics.md`). Behind its bucket is the queue: a FIFO with a limit
in bytes, RED that marks, or priority queues.

::

    TBF 1: ── queue 10:                  FIFO or RED
    TBF 1: ── bands 10: ─┬─ FIFO 21:     pure ACKs          (PRIO, or HTB where there is none)
                         └─ queue 22:    data

    TBF 1: ── bands 10: ─┬─ FIFO 21:     highest band
                         ⋮
                         └─ FIFO 28:     lowest band: CS0, and unmarked packets
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from testbed.core.netlink_attributes import attribute, attributes
from testbed.linux.queues.discipline import Discipline
from testbed.linux.queues.fifo import Fifo
from testbed.linux.queues.fq import Fq
from testbed.linux.queues.prio import Htb, Prio
from testbed.linux.queues.rates import RATESPEC, U32, ratespec, ticks
from testbed.linux.queues.red import Red
from testbed.linux.queues.tree import Leaf, Queue
from testbed.linux.rtnetlink import Tc

TCA_TBF_PARMS, TCA_TBF_RATE64, TCA_TBF_BURST = 1, 4, 6
# struct tc_tbf_qopt after its two ratespecs: limit, buffer, mtu
REST = struct.Struct("=III")


@dataclass(frozen=True)
class Tbf(Leaf):
    """``rate_bps`` with ``burst_bytes`` of bucket; what waits, waits ``below``."""

    kind: ClassVar[str] = "tbf"
    rate_bps: int
    burst_bytes: int
    below: Fifo | Fq | Red | Discipline | Prio | Htb

    @property
    def children(self) -> Mapping[int, Queue]:
        return {1: self.below}

    @property
    def bytes_per_s(self) -> int:
        return self.rate_bps // 8

    def options(self) -> bytes:
        parms = ratespec(self.bytes_per_s) + ratespec(0) + REST.pack(self.below.buffer_bytes, 0, 0)
        encoded = attribute(TCA_TBF_PARMS, parms) + attribute(TCA_TBF_BURST, struct.pack("=I", self.burst_bytes))
        if self.bytes_per_s > U32:
            encoded += attribute(TCA_TBF_RATE64, struct.pack("=Q", self.bytes_per_s))
        return encoded

    def asked(self, major: int) -> dict[str, Any]:
        return {
            "rate_bps": self.bytes_per_s * 8,
            "burst_ticks": ticks(self.burst_bytes, self.bytes_per_s),
            "buffer_bytes": self.below.buffer_bytes,
            "peak_rate_bps": 0,
            "overhead_bytes": 0,
        }

    def held(self, options: bytes, classes: Sequence[Tc], filters: Sequence[Tc]) -> dict[str, Any]:
        fields = attributes(options)
        parms = fields[TCA_TBF_PARMS]
        _, _, overhead, _, _, rate = RATESPEC.unpack_from(parms)
        peak = RATESPEC.unpack_from(parms, RATESPEC.size)[-1]
        limit, burst, _ = REST.unpack_from(parms, 2 * RATESPEC.size)
        if TCA_TBF_RATE64 in fields:
            (rate,) = struct.unpack("=Q", fields[TCA_TBF_RATE64])
        return {
            "rate_bps": rate * 8,
            "burst_ticks": burst,
            "buffer_bytes": limit,
            "peak_rate_bps": peak * 8,
            "overhead_bytes": overhead,
        }

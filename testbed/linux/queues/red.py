"""RED on the instantaneous queue: marks rather than drops."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from testbed.core.netlink_attributes import attribute, attributes
from testbed.linux.queues.rates import U32
from testbed.linux.queues.tree import Leaf
from testbed.linux.rtnetlink import Tc

TCA_RED_PARMS, TCA_RED_STAB, TCA_RED_MAX_P, TCA_RED_FLAGS = 1, 2, 3, 4
ECN, NODROP, ALL = 1, 8, 15  # flags, and all there are
PARMS = struct.Struct("=IIIBBBB")  # struct tc_red_qopt: limit, qth_min, qth_max, Wlog, Plog, Scell_log, flags
FLAGS = struct.Struct("=II")  # a bit field: value, and which bits are meant


@dataclass(frozen=True)
class Red(Leaf):
    """Marks from ``min_bytes`` with a probability that grows to ``probability`` at ``max_bytes``, and all from there on.

    What cannot be marked is kept, or dropped for it.
    """

    kind: ClassVar[str] = "red"
    min_bytes: int
    max_bytes: int
    probability: float
    limit_bytes: int
    otherwise: Literal["keep", "drop"] = "keep"

    @property
    def buffer_bytes(self) -> int:
        return self.limit_bytes

    @property
    def _flags(self) -> int:
        return ECN | (NODROP if self.otherwise == "keep" else 0)

    @property
    def _probability(self) -> int:
        return round(self.probability * U32)

    def options(self) -> bytes:
        parms = PARMS.pack(self.limit_bytes, self.min_bytes, self.max_bytes, 0, 0, 0, 0)
        return (
            attribute(TCA_RED_PARMS, parms)
            + attribute(TCA_RED_STAB, bytes(256))
            + attribute(TCA_RED_MAX_P, struct.pack("=I", self._probability))
            + attribute(TCA_RED_FLAGS, FLAGS.pack(self._flags, ALL))
        )

    def asked(self, major: int) -> dict[str, Any]:
        """The options that the kernel reports. It stores the probability 0 as 1 ÷ 2^0, over the width of the ramp."""
        ramp = max(1, self.max_bytes - self.min_bytes)
        return {
            "limit_bytes": self.limit_bytes,
            "marks_from_bytes": [self.min_bytes, self.max_bytes],
            "probability": self._probability or U32 * ramp & U32,
            "averaging": 0,
            "flags": self._flags,
        }

    def held(self, options: bytes, classes: Sequence[Tc], filters: Sequence[Tc]) -> dict[str, Any]:
        fields = attributes(options)
        limit, low, high, averaging, *_ = PARMS.unpack_from(fields[TCA_RED_PARMS])
        (probability,) = struct.unpack("=I", fields[TCA_RED_MAX_P])
        flags, _ = FLAGS.unpack_from(fields[TCA_RED_FLAGS])
        return {
            "limit_bytes": limit,
            "marks_from_bytes": [low, high],
            "probability": probability,
            "averaging": averaging,
            "flags": flags,
        }

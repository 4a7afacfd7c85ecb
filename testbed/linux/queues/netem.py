"""Delay, jitter, random loss and corruption: netem, on a separate hop.

It is never used where a rate is shaped, nor where a host sends (docs/explanation/statistics.md). It is used at the router's
end of a link that is no bottleneck.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from testbed.core.netlink_attributes import NLA_F_NESTED, attribute, attributes
from testbed.core.runs.plan import Burst
from testbed.linux.queues.tree import UNKNOWN, Leaf
from testbed.linux.rtnetlink import Tc

SMALLEST_PACKET_BYTES = 64
WHOLE = 2**32 - 1  # netem's probability 1
QOPT = struct.Struct("=IIIIII")  # struct tc_netem_qopt: latency in ticks, four other fields, jitter in ticks
TCA_NETEM_CORRUPT, TCA_NETEM_LOSS, TCA_NETEM_LATENCY64, TCA_NETEM_JITTER64, TCA_NETEM_PRNG_SEED = 4, 5, 10, 11, 14
NETEM_LOSS_GE = 2
GEMODEL = struct.Struct(
    "=IIII"
)  # struct tc_netem_gemodel: a burst begins, ends; survival probability inside; loss probability outside
PAIR = struct.Struct("=II")  # struct tc_netem_corrupt: probability, correlation


@dataclass(frozen=True)
class Netem(Leaf):
    """Netem: every packet is delayed by ``delay_ns`` ± up to ``jitter_ns`` (uniform), and may be lost or have a bit
    flipped."""

    kind: ClassVar[str] = "netem"
    delay_ns: int
    jitter_ns: int
    loss: float  # probabilities
    corrupt: float
    fastest_bps: int  # largest arrival rate in bit/s, so that netem's own limit never becomes a queue
    seed: int  # seed of its random numbers (Linux 6.6 or newer; older ones use the kernel's)
    burst: Burst | None = None

    @property
    def _limit(self) -> int:
        waiting = self.fastest_bps // 8 * (self.delay_ns + self.jitter_ns) // 10**9
        return 1000 + 2 * waiting // SMALLEST_PACKET_BYTES

    @property
    def _independent(self) -> int:
        return 0 if self.burst else round(self.loss * WHOLE)

    @property
    def _model(self) -> tuple[int, ...] | None:
        if self.burst is None:
            return None
        return round(self.burst.begins * WHOLE), round(self.burst.ends * WHOLE), round((1 - self.loss) * WHOLE), 0

    def options(self) -> bytes:
        bursts = self._model and attribute(NETEM_LOSS_GE, GEMODEL.pack(*self._model))
        return (
            QOPT.pack(0, self._limit, self._independent, 0, 0, 0)
            + (attribute(TCA_NETEM_LOSS | NLA_F_NESTED, bursts) if bursts else b"")
            + attribute(TCA_NETEM_LATENCY64, struct.pack("=q", self.delay_ns))
            + attribute(TCA_NETEM_JITTER64, struct.pack("=q", self.jitter_ns))
            + attribute(TCA_NETEM_PRNG_SEED, struct.pack("=Q", self.seed))
            + attribute(TCA_NETEM_CORRUPT, PAIR.pack(round(self.corrupt * WHOLE), 0))
        )

    def asked(self, major: int) -> dict[str, Any]:
        return {
            "delay_ns": self.delay_ns,
            "jitter_ns": self.jitter_ns,
            "loss": self._independent,
            "corrupt": round(self.corrupt * WHOLE),
            "limit_packets": self._limit,
            "gap": 0,
            "duplicate": 0,
            "seed": self.seed,
            **({"bursts": list(self._model)} if self._model else {}),
        }

    def held(self, options: bytes, classes: Sequence[Tc], filters: Sequence[Tc]) -> dict[str, Any]:
        _, limit, loss, gap, duplicate, _ = QOPT.unpack_from(options)
        fields = attributes(options[QOPT.size :])
        seed = fields.get(TCA_NETEM_PRNG_SEED)
        model = attributes(fields.get(TCA_NETEM_LOSS, b"")).get(NETEM_LOSS_GE)
        return {
            "delay_ns": _signed(fields[TCA_NETEM_LATENCY64]),
            "jitter_ns": _signed(fields[TCA_NETEM_JITTER64]),
            "loss": loss,
            "corrupt": PAIR.unpack(fields[TCA_NETEM_CORRUPT])[0],
            "limit_packets": limit,
            "gap": gap,
            "duplicate": duplicate,
            "seed": UNKNOWN if seed is None else int.from_bytes(seed, "little"),
            **({"bursts": list(GEMODEL.unpack(model))} if model else {}),
        }


def _signed(payload: bytes) -> int:
    return int.from_bytes(payload, "little", signed=True)

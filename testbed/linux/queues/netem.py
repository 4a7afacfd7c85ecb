"""Delay, jitter, random loss and corruption: netem, on a hop of its own.

Never where a rate is shaped and never where a host sends (docs/fidelity.md): at the
router's end of a link that is no bottleneck.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from testbed.linux.network import Network
from testbed.linux.queues import qdiscs  # noqa: F401 (teaches pyroute2 nanoseconds)
from testbed.linux.settings import interface

SMALLEST_PACKET_BYTES = 64
WHOLE = 2**32 - 1  # netem's probability 1


@dataclass(frozen=True)
class Netem:
    """Every packet that leaves by ``device``: ``delay_ns`` ± up to ``jitter_ns`` (uniform), lost or with a bit flipped at random."""

    node: str
    device: str
    delay_ns: int
    jitter_ns: int
    loss: float  # probabilities
    corrupt: float
    fastest_bps: int  # what may come in, so that netem's own limit never becomes a queue
    seed: int  # of its random numbers (Linux 6.6; before that it uses the kernel's)

    @property
    def where(self) -> str:
        return self.device

    @property
    def what(self) -> str:
        return "netem"

    @property
    def asked(self) -> dict[str, Any]:
        waiting = self.fastest_bps // 8 * (self.delay_ns + self.jitter_ns) // 10**9
        return {
            "delay_ns": self.delay_ns,
            "jitter_ns": self.jitter_ns,
            "loss": round(self.loss * WHOLE),
            "corrupt": round(self.corrupt * WHOLE),
            "limit_packets": 1000 + 2 * waiting // SMALLEST_PACKET_BYTES,
        }

    def apply(self, network: Network) -> None:
        end = interface(network, self.node, self.device)
        asked = self.asked
        options = {
            "limit": asked["limit_packets"],
            "loss": asked["loss"],
            "attrs": [
                ("TCA_NETEM_LATENCY64", self.delay_ns),
                ("TCA_NETEM_JITTER64", self.jitter_ns),
                ("TCA_NETEM_PRNG_SEED", self.seed),
                ("TCA_NETEM_CORRUPT", {"prob_corrupt": asked["corrupt"], "corr_corrupt": 0}),
            ],
        }
        end.node.ip.tc("add", "netem", end.index, "1:", options=options)

    def read(self, network: Network) -> dict[str, Any]:
        end = interface(network, self.node, self.device)
        for qdisc in end.node.ip.get_qdiscs(index=end.index):
            if qdisc.get("kind") == "netem":
                options = qdisc.get("options")
                return {
                    "delay_ns": options.get("TCA_NETEM_LATENCY64"),
                    "jitter_ns": options.get("TCA_NETEM_JITTER64"),
                    "loss": options["loss"],
                    "corrupt": options.get("TCA_NETEM_CORRUPT")["prob_corrupt"],
                    "limit_packets": options["limit"],
                }
        return {}

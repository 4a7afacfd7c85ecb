"""CAKE: fair queueing between hosts and between flows, each queue managed by COBALT, a CoDel variant
(Høiland-Jørgensen et al., 2018).

The bottleneck's token bucket limits the rate; CAKE's own shaper is off.
"""

from __future__ import annotations

from dataclasses import dataclass

from testbed.core.options import Position, Time, option
from testbed.core.units import Duration
from testbed.queues import LEAST_NS, LONGEST_NS, Attributes, Buffer, Counter

TITLE = "CAKE"
KERNEL_NAME = "cake"
TIN_STATS, MARKED_PACKETS = 10, 8  # TCA_CAKE_STATS_TIN_STATS, TCA_CAKE_TIN_STATS_ECN_MARKED_PACKETS
MARKS = (Counter(path=(TIN_STATS, 1, MARKED_PACKETS)),)
BEST_EFFORT = 3  # CAKE_DIFFSERV_BESTEFFORT: one class for all packets
ISOLATION = Position("none", "src_host", "dst_host", "hosts", "flows", "dual_src_host", "dual_dst_host", "triple")
OVERHEAD = 2  # memory of a packet ÷ its bytes, about


@dataclass(frozen=True)
class Options:
    rtt: Duration = option(Duration(100_000_000), "longest usual RTT (default: 100ms)", Time(LEAST_NS, LONGEST_NS))
    isolation: int = option(
        ISOLATION("triple"), f"what takes turns: {', '.join(ISOLATION.words)} (default: triple)", ISOLATION
    )


FORMAT = Attributes({"diffserv": 3, "isolation": 5, "rtt_us": 7, "target_us": 8, "memory_bytes": 10}, {})


def parameters(options: Options, buffer: Buffer) -> dict[str, int]:
    rtt_us = options.rtt // 1000
    return {
        "diffserv": BEST_EFFORT,
        "isolation": options.isolation,
        "rtt_us": rtt_us,
        "target_us": max(1, rtt_us // 20),
        "memory_bytes": OVERHEAD * buffer.size,
    }

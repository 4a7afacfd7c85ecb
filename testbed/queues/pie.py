"""PIE: packets are marked or dropped with a probability that a controller of the waiting time sets (RFC 8033)."""

from __future__ import annotations

from dataclasses import dataclass

from testbed.core.options import Integer, Time, option
from testbed.core.units import Duration
from testbed.queues import LEAST_NS, Attributes, Buffer, Counter

TITLE = "PIE (RFC 8033)"
KERNEL_NAME = "pie"
MARKS = (Counter(36),)  # struct tc_pie_xstats: ecn_mark
TICK_NS = 64
LONGEST_NS = 200 * 10**9  # of a target: 32 bits of ticks


@dataclass(frozen=True)
class Options:
    target: Duration = option(
        Duration(15_000_000), "queueing delay that is aimed at (default: 15ms)", Time(LEAST_NS, LONGEST_NS)
    )
    alpha: int = option(
        2, "weight of the delay's distance from the target, in 1/16 per second (default: 2)", Integer(0, 32)
    )
    beta: int = option(20, "weight of the delay's change, in 1/16 per second (default: 20)", Integer(0, 32))


def _kept_us(microseconds: int) -> int:
    """A time as the kernel keeps it, in ticks of 64 ns."""
    return microseconds * 1000 // TICK_NS * TICK_NS // 1000


FORMAT = Attributes({"target_us": 1, "limit_packets": 2, "alpha": 4, "beta": 5, "ecn": 6}, {"target_us": _kept_us})


def parameters(options: Options, buffer: Buffer) -> dict[str, int]:
    return {
        "limit_packets": buffer.packets,
        "target_us": options.target // 1000,
        "alpha": options.alpha,
        "beta": options.beta,
        "ecn": int(buffer.marks),
    }

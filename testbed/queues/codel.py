"""CoDel: a packet is marked or dropped once packets have waited longer than a target for an interval (RFC 8289)."""

from __future__ import annotations

from dataclasses import dataclass

from testbed.core.options import Time, option
from testbed.core.units import Duration
from testbed.queues import LEAST_NS, LONGEST_NS, Attributes, Buffer, Counter

TITLE = "CoDel (RFC 8289)"
KERNEL_NAME = "codel"
MARKS = (Counter(24), Counter(32))  # struct tc_codel_xstats: ecn_mark, ce_mark


@dataclass(frozen=True)
class Options:
    target: Duration = option(
        Duration(5_000_000), "queueing delay that may persist (default: 5ms)", Time(LEAST_NS, LONGEST_NS)
    )
    interval: Duration = option(
        Duration(100_000_000),
        "time for which the delay may exceed the target: the longest usual RTT (default: 100ms)",
        Time(LEAST_NS, LONGEST_NS),
    )
    ce_threshold: Duration | None = option(
        None, "queueing delay from which every packet is marked (default: none)", Time(high=LONGEST_NS)
    )


def kept_us(microseconds: int) -> int:
    """A time as the kernel keeps it, in units of 1,024 ns, and shows it in microseconds."""
    return ((microseconds * 1000 >> 10) << 10) // 1000


TIMES = {"target_us": kept_us, "interval_us": kept_us, "ce_threshold_us": kept_us}
FORMAT = Attributes({"target_us": 1, "limit_packets": 2, "interval_us": 3, "ecn": 4, "ce_threshold_us": 5}, TIMES)


def parameters(options: Options, buffer: Buffer) -> dict[str, int]:
    return {"limit_packets": buffer.packets, **codel_parameters(options, buffer)}


def codel_parameters(options: Options, buffer: Buffer) -> dict[str, int]:
    """The parameters of CoDel itself, for any set of queues that it manages."""
    if options.ce_threshold is not None and not buffer.marks:
        raise ValueError("ce_threshold is for a queue that marks. Leave out --ecn off.")
    found = {"target_us": options.target // 1000, "interval_us": options.interval // 1000, "ecn": int(buffer.marks)}
    return found if options.ce_threshold is None else {**found, "ce_threshold_us": options.ce_threshold // 1000}

"""FQ-CoDel: flows have a queue each, which take turns, and CoDel watches each of them (RFC 8290)."""

from __future__ import annotations

from dataclasses import dataclass

from testbed.core.options import Bytes, Integer, option
from testbed.queues import LARGEST_QUANTUM, LEAST_QUANTUM, Attributes, Buffer, Counter, codel

TITLE = "FQ-CoDel (RFC 8290)"
KERNEL_NAME = "fq_codel"
MARKS = (Counter(12), Counter(28))  # struct tc_fq_codel_xstats: ecn_mark, ce_mark
MEMORY_BYTES = 1 << 30  # so that only the number of packets limits it


@dataclass(frozen=True)
class Options(codel.Options):
    flows: int = option(1024, "number of queues, into which flows are hashed (default: 1024)", Integer(1, 65536))
    quantum: int | None = option(
        None, "bytes that a queue sends in its turn (default: a frame)", Bytes(LEAST_QUANTUM, LARGEST_QUANTUM)
    )


FORMAT = Attributes(
    {
        "target_us": 1, "limit_packets": 2, "interval_us": 3, "ecn": 4, "flows": 5, "quantum_bytes": 6,
        "ce_threshold_us": 7, "memory_bytes": 9,
    },
    codel.TIMES,
)  # fmt: skip


def parameters(options: Options, buffer: Buffer) -> dict[str, int]:
    return {
        "limit_packets": buffer.packets,
        "memory_bytes": MEMORY_BYTES,
        "flows": options.flows,
        "quantum_bytes": max(LEAST_QUANTUM, options.quantum or buffer.frame_bytes),
        **codel.codel_parameters(options, buffer),
    }

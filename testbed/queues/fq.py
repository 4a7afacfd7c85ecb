"""FQ: flows have a queue each, which take turns; it never marks (Linux's fq, without the pacing of local sockets)."""

from __future__ import annotations

from dataclasses import dataclass

from testbed.core.options import Bytes, Integer, option
from testbed.queues import LARGEST_QUANTUM, LEAST_QUANTUM, Attributes, Buffer, Counter

TITLE = "fair queueing (Linux's fq)"
KERNEL_NAME = "fq"
MARKS: tuple[Counter, ...] = ()


@dataclass(frozen=True)
class Options:
    quantum: int | None = option(
        None, "bytes that a flow sends in its turn (default: two frames)", Bytes(LEAST_QUANTUM, LARGEST_QUANTUM)
    )
    flow_limit: int = option(100, "packets of one flow that may wait (default: 100)", Integer(1, 1_000_000))


FORMAT = Attributes(
    {"limit_packets": 1, "flow_limit_packets": 2, "quantum_bytes": 3, "initial_quantum_bytes": 4, "paces": 5}, {}
)


def parameters(options: Options, buffer: Buffer) -> dict[str, int]:
    quantum = options.quantum or 2 * buffer.frame_bytes
    return {
        "limit_packets": buffer.packets,
        "flow_limit_packets": options.flow_limit,
        "quantum_bytes": quantum,
        "initial_quantum_bytes": 5 * quantum,
        "paces": 0,
    }

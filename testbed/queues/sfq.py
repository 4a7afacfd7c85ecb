"""SFQ: flows are hashed into queues, which take turns; a full buffer drops from the longest (McKenney, 1990)."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass

from testbed.core.options import Integer, option
from testbed.queues import Buffer, Counter

TITLE = "stochastic fair queueing (SFQ)"
KERNEL_NAME = "sfq"
MARKS: tuple[Counter, ...] = ()
MOST = 127  # packets of a flow
# struct tc_sfq_qopt_v1: quantum, perturbation, limit, divisor, flows, depth, then RED's parameters and counters.
QOPT = struct.Struct("=IiIIII48x")
NAMES = ("quantum_bytes", "perturb_s", "limit_packets", "divisor", "flows", "depth_packets")


@dataclass(frozen=True)
class Options:
    flows: int = option(127, "flows that may wait at the same time (default: 127)", Integer(1, 65279))
    depth: int = option(MOST, "packets of one flow that may wait (default: 127)", Integer(1, MOST))


class _Struct:
    """One structure rather than attributes."""

    def encode(self, parameters: Mapping[str, int]) -> bytes:
        return QOPT.pack(*(parameters[name] for name in NAMES))

    def kept(self, parameters: Mapping[str, int]) -> dict[str, int]:
        return dict(parameters)

    def decode(self, shown: bytes) -> dict[str, int]:
        return dict(zip(NAMES, QOPT.unpack_from(shown), strict=True))


FORMAT = _Struct()


def parameters(options: Options, buffer: Buffer) -> dict[str, int]:
    limit = min(buffer.packets, options.flows * options.depth)
    return {
        "quantum_bytes": buffer.frame_bytes,
        "perturb_s": 0,
        "limit_packets": limit,
        "divisor": 1024,
        "flows": min(options.flows, limit),
        "depth_packets": options.depth,
    }

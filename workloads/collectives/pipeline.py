"""Pipeline parallelism: activations go from stage to stage, then their gradients back.

Rank i is stage i. Micro-batches of activations are sent on as they come in, from the
first stage to the last; then gradients of the same size travel back (GPipe, Huang et
al., 2019). ``size`` is what crosses one boundary between stages in one direction. What
the stages compute in between is computing of the trace, before and after.
"""

from __future__ import annotations

from testbed.replay.exchange import Links, relay
from testbed.traces.collectives import parts
from testbed.transports import Flow

KIND = "send_recv"
MICRO_BATCHES = 4


def connections(n: int) -> int:
    return 2 * (n - 1)


def rounds(n: int, size: int) -> list[dict[Flow, int]]:
    forward = {(stage, stage + 1): size for stage in range(n - 1)}
    return [forward, {(target, source): size for source, target in forward}]


def run(rank: int, n: int, size: int, links: Links) -> None:
    pieces = parts(MICRO_BATCHES, size)
    before, after = ([rank - 1] if rank else []), ([rank + 1] if rank < n - 1 else [])
    relay([links[one, rank] for one in before], [links[rank, one] for one in after], pieces)
    relay([links[one, rank] for one in after], [links[rank, one] for one in before], pieces)

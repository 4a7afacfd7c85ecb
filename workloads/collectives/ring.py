"""Ring all-reduce: reduce-scatter, then all-gather, each of n-1 steps around the ring.

In every step each rank sends one n-th of the tensor to its right neighbour and receives
one from its left, so that a rank sends 2(n-1)/n of the tensor (Patarasuk and Yuan, 2009).
A step sends what the previous step received. As in NCCL, chunks are sent in slices, so
that a slice may leave as soon as it has arrived. A small chunk has fewer slices, so that
each fills a packet: NCCL's slices have a minimum size, too.
"""

from __future__ import annotations

from testbed.replay.exchange import Links
from testbed.replay.ring import rotate
from testbed.traces.collectives import parts
from testbed.transports import Flow

KIND = "all_reduce"


def connections(n: int) -> int:
    return n


def rounds(n: int, size: int) -> list[dict[Flow, int]]:
    return [{(rank, (rank + 1) % n): sum(_sent_by(rank, n, size)) for rank in range(n)}]


def run(rank: int, n: int, size: int, links: Links) -> None:
    rotate(rank, n, _sent_by(rank, n, size), _sent_by((rank - 1) % n, n, size), links, n - 1)


def _sent_by(rank: int, n: int, size: int) -> list[int]:
    """Bytes ``rank`` sends in each of its 2(n-1) steps: chunk rank, rank-1, ..., around twice."""
    chunks = parts(n, size)
    return [chunks[(rank - step) % n] for step in range(n - 1)] + [
        chunks[(rank + 1 - step) % n] for step in range(n - 1)
    ]

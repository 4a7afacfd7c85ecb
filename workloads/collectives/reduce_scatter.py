"""Ring reduce-scatter: every rank ends up with the sum of one n-th of the tensor, after n-1 steps.

``size`` is the complete tensor in bytes, the input; a rank sends (n-1)/n of it.
"""

from __future__ import annotations

from testbed.replay.exchange import Links
from testbed.replay.ring import rotate
from testbed.traces.collectives import parts
from testbed.transports import Flow

KIND = "reduce_scatter"


def connections(n: int) -> int:
    return n


def rounds(n: int, size: int) -> list[dict[Flow, int]]:
    return [{(rank, (rank + 1) % n): sum(_sent_by(rank, n, size)) for rank in range(n)}]


def run(rank: int, n: int, size: int, links: Links) -> None:
    rotate(rank, n, _sent_by(rank, n, size), _sent_by((rank - 1) % n, n, size), links, n - 1)


def _sent_by(rank: int, n: int, size: int) -> list[int]:
    """Return the sizes that a rank sends, first that of the part that ends at the left neighbour, which has the most
    hops."""
    return [parts(n, size)[(rank - 1 - step) % n] for step in range(n - 1)]

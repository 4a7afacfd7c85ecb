"""Ring all-gather: every rank holds one n-th of the tensor; after n-1 steps all hold all of it.

``size`` is the complete tensor in bytes, the output; a rank sends (n-1)/n of it.
"""

from __future__ import annotations

from testbed.replay.exchange import Links
from testbed.replay.ring import rotate
from testbed.traces.collectives import parts
from testbed.transports import Flow

KIND = "all_gather"


def connections(n: int) -> int:
    return n


def rounds(n: int, size: int) -> list[dict[Flow, int]]:
    return [{(rank, (rank + 1) % n): sum(_sent_by(rank, n, size)) for rank in range(n)}]


def run(rank: int, n: int, size: int, links: Links) -> None:
    rotate(rank, n, _sent_by(rank, n, size), _sent_by((rank - 1) % n, n, size), links, 0)


def _sent_by(rank: int, n: int, size: int) -> list[int]:
    """First its own part, then what came from the left."""
    return [parts(n, size)[(rank - step) % n] for step in range(n - 1)]

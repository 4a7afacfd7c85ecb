"""All-to-all: every rank sends a different n-th of its tensor to each other rank, all at the same time.

``size`` is the tensor of one rank in bytes; it sends (n-1)/n of it (expert and embedding parallelism).
"""

from __future__ import annotations

from testbed.replay.exchange import Links, exchange
from testbed.traces.collectives import parts
from testbed.transports import Flow

KIND = "all_to_all"


def connections(n: int) -> int:
    return n * (n - 1)


def rounds(n: int, size: int) -> list[dict[Flow, int]]:
    chunks = parts(n, size)
    return [{(source, target): chunks[target] for source in range(n) for target in range(n) if source != target}]


def run(rank: int, n: int, size: int, links: Links) -> None:
    chunks = parts(n, size)
    others = [other for other in range(n) if other != rank]
    exchange(
        [(links[rank, other], chunks[other]) for other in others],
        [(links[other, rank], chunks[rank]) for other in others],
    )

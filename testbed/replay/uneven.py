"""Exchanges that are no collective of a file: a message from one rank to another, and collectives of uneven parts.

``rows`` holds the parts: for an all-to-all the bytes that each rank sends to each, otherwise one row with each rank's part.
"""

from __future__ import annotations

from collections.abc import Sequence

from testbed.replay.exchange import Links, exchange, receive, send
from testbed.replay.ring import rotate
from testbed.traces.collectives import parts
from testbed.transports import Flow

MESSAGE = "send"
Rows = Sequence[Sequence[int]]


def share(rows: Rows, channel: int, channels: int) -> list[list[int]]:
    """The part of a channel."""
    return [[parts(channels, size)[channel] for size in row] for row in rows]


def rounds(kind: str, n: int, size: int, rows: Rows) -> list[dict[Flow, int]]:
    """Return the rounds of an uneven exchange, in the form of `testbed.traces.collectives`: bytes by flow."""
    if kind == MESSAGE:
        return [{(0, 1): size}]
    if kind == "all_to_all":
        return [{(a, b): rows[a][b] for a in range(n) for b in range(n) if a != b and rows[a][b]}]
    return [{(rank, (rank + 1) % n): sum(_sent_by(kind, rank, n, rows[0])) for rank in range(n)}]


def run(kind: str, rank: int, n: int, size: int, rows: Rows, links: Links) -> None:
    """Run one rank's part of an uneven exchange, blocking."""
    if kind == MESSAGE:
        send(links[0, 1], size) if rank == 0 else receive(links[0, 1], size)
    elif kind == "all_to_all":
        others = [other for other in range(n) if other != rank]
        exchange(
            [(links[rank, other], rows[rank][other]) for other in others if rows[rank][other]],
            [(links[other, rank], rows[other][rank]) for other in others if rows[other][rank]],
        )
    else:
        left = (rank - 1) % n
        gradients = n - 1 if kind == "reduce_scatter" else 0
        rotate(rank, n, _sent_by(kind, rank, n, rows[0]), _sent_by(kind, left, n, rows[0]), links, gradients)


def _sent_by(kind: str, rank: int, n: int, row: Sequence[int]) -> list[int]:
    """Around a ring, as `all_gather` and `reduce_scatter` of equal parts have it."""
    first = rank if kind == "all_gather" else rank - 1
    return [row[(first - step) % n] for step in range(n - 1)]

"""Broadcast: rank 0's tensor travels along a chain of all ranks, in slices that are passed on at once."""

from __future__ import annotations

from testbed.replay.exchange import Links, relay
from testbed.traces.collectives import parts
from testbed.transports import Flow

KIND = "broadcast"
WAITS = "nothing"  # the first gets no answer
SLICES = 16


def connections(n: int) -> int:
    return n - 1


def rounds(n: int, size: int) -> list[dict[Flow, int]]:
    return [{(rank, rank + 1): size for rank in range(n - 1)}]


def run(rank: int, n: int, size: int, links: Links) -> None:
    sources = [links[rank - 1, rank]] if rank else []
    targets = [links[rank, rank + 1]] if rank < n - 1 else []
    relay(sources, targets, parts(SLICES, size))

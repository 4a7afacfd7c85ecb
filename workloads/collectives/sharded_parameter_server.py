"""Parameter servers, sharded: every rank serves one n-th of the parameters, and trains.

Push: part j of the gradients goes to rank j. Pull: rank j sends part j to all. A rank sends 2(n-1)/n of the tensor, as
in a ring, but to all others at the same time (as BytePS places its servers; Jiang et al., OSDI 2020).
"""

from __future__ import annotations

from testbed.replay.exchange import Links, exchange
from testbed.traces.collectives import parts
from testbed.transports import Flow

KIND = "all_reduce"


def connections(n: int) -> int:
    return n * (n - 1)


def rounds(n: int, size: int) -> list[dict[Flow, int]]:
    shards = parts(n, size)
    pairs = [(source, target) for source in range(n) for target in range(n) if source != target]
    return [{flow: shards[flow[1]] for flow in pairs}, {flow: shards[flow[0]] for flow in pairs}]


def run(rank: int, n: int, size: int, links: Links) -> None:
    shards = parts(n, size)
    others = [other for other in range(n) if other != rank]
    # Push every part to its server, then pull the others' parts.
    exchange(
        [(links[rank, other], shards[other]) for other in others],
        [(links[other, rank], shards[rank]) for other in others],
        "gradient",
    )
    exchange(
        [(links[rank, other], shards[rank]) for other in others],
        [(links[other, rank], shards[other]) for other in others],
    )

"""Transpose all-reduce: rank i receives the i-th part of every rank, sums them up, and sends the sum to all (OptiReduce; Warraich et al., NSDI 2025).

Every rank sends 2(n-1)/n of the tensor, directly to its receivers, so that a loss costs one part of one rank and does
not spread. Each step pairs every rank with one to send to and one to receive from: no rank receives from two at the
same time (the paper's incast of 1). The paper's larger incasts are not implemented; `sharded_parameter_server` sends to
all others at the same time.
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
    steps = [[(rank, (rank + step) % n) for rank in range(n)] for step in range(1, n)]
    pushed = [{flow: shards[flow[1]] for flow in step} for step in steps]
    return pushed + [{flow: shards[flow[0]] for flow in step} for step in steps]


def run(rank: int, n: int, size: int, links: Links) -> None:
    shards = parts(n, size)
    steps = [((rank + step) % n, (rank - step) % n) for step in range(1, n)]
    for target, source in steps:
        exchange([(links[rank, target], shards[target])], [(links[source, rank], shards[rank])], "gradient")
    for target, source in steps:
        exchange([(links[rank, target], shards[rank])], [(links[source, rank], shards[source])])

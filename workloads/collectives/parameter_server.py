"""Parameter server, a single one: all workers push their gradients to rank 0, then pull the result.

The incast case: n-1 senders share the server's link; then the server's link in the other direction carries n-1 copies
(Li et al., OSDI 2014). Rank 0 is the server and does not train. Pushed gradients may be lost, pulled parameters may
not.
"""

from __future__ import annotations

from testbed.replay.exchange import Links, exchange
from testbed.transports import Flow

KIND = "all_reduce"
WAITS = "hub"  # a worker that has pulled continues while the server still sends to others


def connections(n: int) -> int:
    return 2 * (n - 1)


def rounds(n: int, size: int) -> list[dict[Flow, int]]:
    return [{(worker, 0): size for worker in range(1, n)}, {(0, worker): size for worker in range(1, n)}]


def run(rank: int, n: int, size: int, links: Links) -> None:
    if rank == 0:
        exchange([], [(links[worker, 0], size) for worker in range(1, n)], "gradient")
        exchange([(links[0, worker], size) for worker in range(1, n)], [])
    else:
        exchange([(links[rank, 0], size)], [], "gradient")
        exchange([], [(links[0, rank], size)])

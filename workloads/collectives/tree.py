"""Tree all-reduce: sums go up a binary tree to rank 0, and the result down again, in slices.

Rank i's children are 2i+1 and 2i+2. The root returns every slice as soon as it has arrived
from both children, so that both directions of a link are busy (as in NCCL's trees).
Each rank except the root sends the tensor up once, and down to each of its children.
"""

from __future__ import annotations

from testbed.replay.exchange import Links, relay, together
from testbed.traces.collectives import parts
from testbed.transports import Flow

KIND = "all_reduce"
SLICES = 16


def connections(n: int) -> int:
    return 2 * (n - 1)


def rounds(n: int, size: int) -> list[dict[Flow, int]]:
    up = {(rank, (rank - 1) // 2): size for rank in range(1, n)}
    return [{**up, **{(parent, rank): size for rank, parent in up}}]


def run(rank: int, n: int, size: int, links: Links) -> None:
    slices = parts(SLICES, size)
    children = [child for child in (2 * rank + 1, 2 * rank + 2) if child < n]
    up, down = [links[child, rank] for child in children], [links[rank, child] for child in children]
    if rank == 0:
        relay(up, down, slices, "gradient")
        return
    parent = (rank - 1) // 2
    together(
        lambda: relay(up, [links[rank, parent]], slices, "gradient", "gradient"),
        lambda: relay([links[parent, rank]], down, slices),
    )

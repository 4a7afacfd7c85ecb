"""A collective: an all-reduce by a hub. Every worker sends its tensor to rank 0, which sends the sum to all.

mltcp run --collective ./collective_hub.py --jobs 2 --workers 4 --topo star --on flow
"""

from testbed.replay.exchange import Links, receive, send
from testbed.transports import Flow

KIND = "all_reduce"


def connections(n: int) -> int:
    return 2 * (n - 1)


def rounds(n: int, size: int) -> list[dict[Flow, int]]:
    return [{(rank, 0): size for rank in range(1, n)}, {(0, rank): size for rank in range(1, n)}]


def run(rank: int, n: int, size: int, links: Links) -> None:
    for (source, _), link in links.items():
        (send if source == rank else receive)(link, size)

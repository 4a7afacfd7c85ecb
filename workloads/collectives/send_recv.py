"""Point to point: rank 0 sends the tensor to rank 1, whose one-byte answer ends the exchange.

The synthetic job's one-way transfer; the answer returns on the same connection.
"""

from __future__ import annotations

from testbed.replay.exchange import Links, answer, answered, receive, send
from testbed.transports import Flow

KIND = "send_recv"


def connections(n: int) -> int:
    return 1


def rounds(n: int, size: int) -> list[dict[Flow, int]]:
    return [{(0, 1): size}]


def run(rank: int, n: int, size: int, links: Links) -> None:
    if rank == 0:
        send(links[0, 1], size)
        answered(links[0, 1])
    elif rank == 1:
        receive(links[0, 1], size)
        answer(links[0, 1])

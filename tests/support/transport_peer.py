"""``python -m tests.support.transport_peer TRANSPORT SHAPE RANK RANKS``: rounds with a ``server`` (rank 0) or in a ``ring``, for ever; says how they end."""

from __future__ import annotations

import os
import sys
from typing import NoReturn

from testbed import transports
from testbed.core.errors import TestbedError
from testbed.transports import Endpoint, Message, Place, Transport, TransportError
from tests.support.processes import loopback

BYTES, PORT = 2_000_000, 7501


def main(name: str, shape: str, rank: int, ranks: int) -> None:
    flows = [flow for worker in range(1, ranks) for flow in ((0, worker), (worker, 0))]
    if shape == "ring":
        flows = [(one, (one + 1) % ranks) for one in range(ranks)]
    addresses = loopback(ranks, os.getppid())
    transport = transports.parse(f"{name}:silence=5s")
    endpoint = transport.listen(Place(rank, addresses, PORT, flows)).connect().endpoint(0, flows)
    try:
        (around if shape == "ring" else exchange)(endpoint, transport, rank, ranks)
    except TransportError as error:
        endpoint.end(str(error), error.gone)
        raise


def exchange(endpoint: Endpoint, transport: Transport, rank: int, ranks: int) -> NoReturn:
    others = range(1, ranks) if rank == 0 else range(1)
    number = 0
    while True:
        push, pull = Message(number, 0, 0, BYTES, "gradient"), Message(number, 1, 0, BYTES, "parameter")
        if rank == 0:
            under_way = [endpoint.post_receive(one, push, None, transport.close("gradient")) for one in others]
            for one in under_way:
                one.wait()
            under_way = [endpoint.post_send(one, pull, None) for one in others]
        else:
            endpoint.post_send(0, push, None).wait()
            under_way = [endpoint.post_receive(0, pull, None, transport.close("parameter"))]
        for one in under_way:
            one.wait()
        print(number, flush=True)
        number += 1


def around(endpoint: Endpoint, transport: Transport, rank: int, ranks: int) -> NoReturn:
    number = 0
    while True:
        m = Message(number, 0, 0, BYTES, "gradient")
        under_way = [
            endpoint.post_receive((rank - 1) % ranks, m, None, transport.close("gradient")),
            endpoint.post_send((rank + 1) % ranks, m, None),
        ]
        for one in under_way:
            one.wait()
        print(number, flush=True)
        number += 1


if __name__ == "__main__":
    try:
        main(sys.argv[1], sys.argv[2], *map(int, sys.argv[3:]))
    except TestbedError as error:
        sys.exit(str(error))

"""``python -m tests.transport_peer RANK RANKS PORT``: rounds with a parameter server (rank 0) for ever; says how they end."""

from __future__ import annotations

import sys

from core.errors import TestbedError
from core.units import Duration
from transports import Message, Place, ltp

BYTES = 2_000_000


def main(rank: int, ranks: int, port: int) -> None:
    flows = [flow for worker in range(1, ranks) for flow in ((0, worker), (worker, 0))]
    addresses = [f"127.0.0.{20 + number}" for number in range(ranks)]
    options = ltp.Options(silence=Duration.parse("10s"))
    endpoint = ltp.listen(Place(rank, addresses, port, flows), options).connect().endpoint(0, flows)
    others = range(1, ranks) if rank == 0 else range(1)
    number = 0
    while True:
        push, pull = Message(number, 0, 0, BYTES, "gradient"), Message(number, 1, 0, BYTES, "parameter")
        if rank == 0:
            under_way = [endpoint.post_receive(one, push, None, ltp.close(options, "gradient")) for one in others]
            for one in under_way:
                one.wait()
            under_way = [endpoint.post_send(one, pull, None) for one in others]
        else:
            endpoint.post_send(0, push, None).wait()
            under_way = [endpoint.post_receive(0, pull, None, ltp.close(options, "parameter"))]
        for one in under_way:
            one.wait()
        print(number, flush=True)
        number += 1


if __name__ == "__main__":
    try:
        main(*map(int, sys.argv[1:]))
    except TestbedError as error:
        sys.exit(str(error))

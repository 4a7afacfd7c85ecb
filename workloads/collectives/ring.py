"""Ring all-reduce: reduce-scatter, then all-gather, each of n-1 steps around the ring.

In every step each rank sends one n-th of the tensor to its right neighbour and receives
one from its left, so that a rank sends 2(n-1)/n of the tensor (Patarasuk and Yuan, 2009).
What a step sends is what the step before received; as in NCCL the chunks travel in
slices, so that a slice may leave as soon as its predecessor has come in, but in fewer where
one would not fill a packet: NCCL's have a least size, too.
"""

from __future__ import annotations

import threading

from testbed.replay.collectives import Links, parts, receive, send
from testbed.transports import Flow, Stage

KIND = "all_reduce"
SLICES = 4  # per chunk, at most
LEAST_SLICE = 1448  # bytes: what a packet carries


def connections(n: int) -> int:
    return n


def rounds(n: int, size: int) -> list[dict[Flow, int]]:
    return [{(rank, (rank + 1) % n): sum(_sent_by(rank, n, size)) for rank in range(n)}]


def run(rank: int, n: int, size: int, links: Links) -> None:
    rotate(rank, n, _sent_by(rank, n, size), _sent_by((rank - 1) % n, n, size), links, n - 1)


def _sent_by(rank: int, n: int, size: int) -> list[int]:
    """Bytes ``rank`` sends in each of its 2(n-1) steps: chunk rank, rank-1, ..., around twice."""
    chunks = parts(n, size)
    return [chunks[(rank - step) % n] for step in range(n - 1)] + [
        chunks[(rank + 1 - step) % n] for step in range(n - 1)
    ]


def slices(chunk: int) -> list[int]:
    """Bytes of each; both ends of a flow cut alike."""
    count = SLICES
    while count > 1 and chunk < count * LEAST_SLICE:
        count //= 2
    return parts(count, chunk)


def rotate(rank: int, n: int, sends: list[int], receives: list[int], links: Links, gradients: int) -> None:
    """Go around a ring: send to the right what came from the left a step before, slice by slice.

    The first ``gradients`` steps carry what is summed up on the way.
    """
    left, right = (rank - 1) % n, (rank + 1) % n
    received = threading.Semaphore(0)
    failures: list[BaseException] = []

    def stage(step: int) -> Stage:
        return "gradient" if step < gradients else "parameter"

    def sender() -> None:
        try:
            for index, step in enumerate(sends):
                for piece in slices(step):
                    if index:  # what we forward must have come in
                        received.acquire()
                    if failures:
                        return
                    send(links[rank, right], piece, stage(index))
        except BaseException as error:
            failures.append(error)

    # The sender alone has a thread of its own: under virtual time threads cost, and every bucket starts one.
    thread = threading.Thread(target=sender, name="ring-sender", daemon=True)
    thread.start()
    try:
        for index, step in enumerate(receives):
            for piece in slices(step):
                receive(links[left, rank], piece, stage(index), hops=n - 1)
                received.release()
    except OSError as error:
        failures.append(error)
        received.release()
    thread.join()
    if failures:
        raise failures[0]

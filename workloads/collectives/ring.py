"""Ring all-reduce: reduce-scatter, then all-gather, each of n-1 steps around the ring.

In every step each rank sends one n-th of the tensor to its right neighbour and receives
one from its left, so that a rank sends 2(n-1)/n of the tensor (Patarasuk and Yuan, 2009).
What a step sends is what the step before received; as in NCCL the chunks travel in
slices, so that a slice may leave as soon as its predecessor has come in.
"""

from __future__ import annotations

import threading

from workloads.collectives import Flow, Links, receive, send

SLICES = 4  # per chunk


def flows(n: int) -> list[Flow]:
    return [(rank, (rank + 1) % n) for rank in range(n)]


def chunks(n: int, size: int) -> list[int]:
    """The tensor in ``n`` parts that differ by a byte at most."""
    return [size * (i + 1) // n - size * i // n for i in range(n)]


def volume(n: int, size: int, flow: Flow) -> int:
    return sum(_sent_by(flow[0], n, size))


def _sent_by(rank: int, n: int, size: int) -> list[int]:
    """Bytes ``rank`` sends in each of its 2(n-1) steps: chunk rank, rank-1, ..., around twice."""
    parts = chunks(n, size)
    return [parts[(rank - step) % n] for step in range(n - 1)] + [parts[(rank + 1 - step) % n] for step in range(n - 1)]


def _sliced(step: int) -> list[int]:
    return [step * (i + 1) // SLICES - step * i // SLICES for i in range(SLICES)]


def run(rank: int, n: int, size: int, links: Links) -> None:
    left, right = (rank - 1) % n, (rank + 1) % n
    received = threading.Semaphore(0)
    failures: list[OSError] = []

    def sender() -> None:
        try:
            for index, step in enumerate(_sent_by(rank, n, size)):
                for piece in _sliced(step):
                    if index:  # what we forward must have come in
                        received.acquire()
                    if failures:
                        return
                    send(links[rank, right], piece)
        except OSError as error:
            failures.append(error)

    thread = threading.Thread(target=sender, name="ring-sender")
    thread.start()
    try:
        for step in _sent_by(left, n, size):
            for piece in _sliced(step):
                receive(links[left, rank], piece)
                received.release()
    except OSError as error:
        failures.append(error)
        received.release()
    thread.join()
    if failures:
        raise failures[0]

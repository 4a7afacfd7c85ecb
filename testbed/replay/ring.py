"""Send a tensor's parts around a ring of ranks, slice by slice.

As in NCCL, chunks travel in slices, so that a slice can leave as soon as its predecessor has come in. A chunk has fewer
slices where one would not fill a packet.
"""

from __future__ import annotations

import threading

from testbed.replay.exchange import Links, receive, send
from testbed.traces.collectives import parts
from testbed.transports import Stage

SLICES = 4  # per chunk, at most
LEAST_SLICE = 1448  # bytes: the payload of a packet


def slices(chunk: int) -> list[int]:
    """Bytes of each; both ends of a flow cut equally."""
    count = SLICES
    while count > 1 and chunk < count * LEAST_SLICE:
        count //= 2
    return parts(count, chunk)


def rotate(rank: int, n: int, sends: list[int], receives: list[int], links: Links, gradients: int) -> None:
    """Run a ring: in every step, send to the right what arrived from the left in the previous step, slice by slice.

    The first ``gradients`` steps carry partial sums.
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
                    if index:  # data to forward must have arrived
                        received.acquire()
                    if failures:
                        return
                    send(links[rank, right], piece, stage(index))
        except BaseException as error:
            failures.append(error)

    # Only the sender has a separate thread: under virtual time threads are costly, and every bucket starts one.
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

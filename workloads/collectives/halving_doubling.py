"""Recursive halving and doubling: an all-reduce in 2 log2(n) rounds.

Reduce-scatter by exchanging half of the remaining part with a partner n/2, n/4, … ranks away,
then all-gather in reverse order (Rabenseifner; Thakur et al., 2005). A rank sends
2(n-1)/n of the tensor. If n is no power of two, the ranks above the next lower one send
their tensor to a partner first and receive the result last.
"""

from __future__ import annotations

from testbed.replay.exchange import Links, exchange
from testbed.traces.collectives import parts
from testbed.transports import Flow

KIND = "all_reduce"


def connections(n: int) -> int:
    return _core(n) * (_core(n).bit_length() - 1) + 2 * (n - _core(n))


def rounds(n: int, size: int) -> list[dict[Flow, int]]:
    core = _core(n)
    extra = range(core, n)
    result: list[dict[Flow, int]] = []
    for steps in zip(*(_steps(rank, core, size) for rank in range(core)), strict=True):
        result.append({(rank, partner): sent for rank, (partner, sent, _) in enumerate(steps)})
    if extra:
        result.insert(0, {(rank, rank - core): size for rank in extra})
        result.append({(rank - core, rank): size for rank in extra})
    return result


def run(rank: int, n: int, size: int, links: Links) -> None:
    core = _core(n)
    if rank >= core:
        exchange([(links[rank, rank - core], size)], [], "gradient")
        exchange([], [(links[rank - core, rank], size)])
        return
    if rank + core < n:
        exchange([], [(links[rank + core, rank], size)], "gradient")
    steps = _steps(rank, core, size)
    for number, (partner, sent, received) in enumerate(steps):
        halving = number < len(steps) // 2
        exchange(
            [(links[rank, partner], sent)],
            [(links[partner, rank], received)],
            "gradient" if halving else "parameter",
        )
    if rank + core < n:
        exchange([(links[rank, rank + core], size)], [])


def _core(n: int) -> int:
    """The largest power of two that is not above ``n``."""
    return 1 << (n.bit_length() - 1)


def _steps(rank: int, core: int, size: int) -> list[tuple[int, int, int]]:
    """(partner, bytes sent, bytes received) of each round among ``core`` ranks."""
    chunks = parts(core, size)
    low, high = 0, core  # the chunks this rank still sums up
    halving: list[tuple[int, int, int]] = []
    distance = core // 2
    while distance:
        middle = (low + high) // 2
        lower, upper = sum(chunks[low:middle]), sum(chunks[middle:high])
        if rank & distance:
            low = middle
            halving.append((rank ^ distance, lower, upper))
        else:
            high = middle
            halving.append((rank ^ distance, upper, lower))
        distance //= 2
    return halving + [(partner, received, sent) for partner, sent, received in reversed(halving)]

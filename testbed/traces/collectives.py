"""Collectives, one file each: pairs of sender and receiver, sizes, and the algorithm.

A collective is a module with

``KIND``
    the kind of operation it executes (``"all_reduce"``, ...);
``connections(n) -> int``
    the number of directed flows among ``n`` workers;
``rounds(n, size) -> list[dict[(source, target), int]]``
    payload bytes on each directed flow among ``n`` workers (ranks) for a tensor of ``size`` bytes, by round. A round begins when
    the previous one has ended on all workers. Overlapping transfers are one round.
``run(rank, n, size, links) -> None``
    this rank's part, blocking; ``links[source, target]`` are its flows, each used in one direction. Messages have stage
    ``"gradient"`` if part of them may be lost (partial sums), else ``"parameter"``, the default.

``WAITS``, unless all workers wait for each other before they continue
    ``"hub"``: only one of them waits for all; ``"nothing"``: none does (`testbed.models.bounds`).

A new file adds a collective.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from types import ModuleType
from typing import Literal

from testbed import registry
from testbed.transports import Flow

# A rank sends in a round what it received in the previous one, so all flows are as fast as the slowest.
LOCKSTEP = ("ring", "all_gather", "reduce_scatter")
Waits = Literal["all", "hub", "nothing"]
_UNEVEN = 0.01  # minimum difference between parts, relative to an even part


def names() -> list[str]:
    """Return the names of built-in collectives."""
    return list(registry.names(registry.COLLECTIVE))


@cache
def find(name: str) -> ModuleType:
    """The collective ``name``; raises `registry.UnknownContentError`."""
    return registry.find(registry.COLLECTIVE, name)


def connections(name: str, n: int) -> int:
    """Return the number of flows of the collective ``name`` among ``n`` workers."""
    return int(find(name).connections(n))


def flows(name: str, n: int) -> list[Flow]:
    """Pairs of sender and receiver in the collective ``name`` among ``n`` workers."""
    return list(dict.fromkeys(flow for one in find(name).rounds(n, n) for flow in one))


def waits(name: str) -> Waits:
    """Return which workers of the collective ``name`` wait for each other before they continue."""
    found: Waits = getattr(find(name), "WAITS", "all")
    return found


def volume(name: str, n: int, size: int, flow: Flow) -> int:
    """Payload bytes ``flow`` carries in one collective over a tensor of ``size`` bytes."""
    return sum(one.get(flow, 0) for one in find(name).rounds(n, size))


def parts(n: int, size: int) -> list[int]:
    """A tensor in ``n`` parts that differ by a byte at most."""
    return [size * (i + 1) // n - size * i // n for i in range(n)]


def uneven(parts: Sequence[int]) -> bool:
    """Return True if the parts of an all-to-all differ enough to be replayed separately."""
    total = sum(parts)
    return max(abs(part * len(parts) - total) for part in parts) > _UNEVEN * total

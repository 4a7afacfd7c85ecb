"""The flows of an exchange in a plan, with sender, receiver and size: a collective of all ranks or of a group, or a message."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Protocol

from testbed.replay import uneven
from testbed.traces import collectives
from testbed.traces.collectives import parts
from testbed.transports import Flow


class Exchange(Protocol):
    """The fields of an operation that are used here."""

    @property
    def kind(self) -> str: ...
    @property
    def algorithm(self) -> str: ...
    @property
    def members(self) -> Sequence[int] | None: ...
    @property
    def rows(self) -> Sequence[Sequence[int]]: ...
    @property
    def inside_ns(self) -> int | None: ...


def kind_of(op: Exchange) -> str:
    """The key in `testbed.replay.uneven`; empty for a collective of equal parts."""
    return uneven.MESSAGE if op.kind in ("send", "recv") else op.kind if op.rows else ""


def rounds(op: Exchange, workers: int, size: int, channel: int = 0, channels: int = 1) -> list[dict[Flow, int]]:
    """Payload on each flow in each round, by ranks of the job: of a channel whose part of the tensor is ``size``."""
    if op.members is None:
        found: list[dict[Flow, int]] = collectives.find(op.algorithm).rounds(workers, size)
        return found
    if op.inside_ns is not None:
        return []
    count, kind = len(op.members), kind_of(op)
    if kind:
        local = uneven.rounds(kind, count, size, uneven.share(op.rows, channel, channels))
    else:
        local = collectives.find(op.algorithm).rounds(count, size)
    return [{(op.members[a], op.members[b]): each for (a, b), each in flows.items()} for flows in local]


def by_channel(op: Exchange, workers: int, size: int, channels: int) -> list[list[dict[Flow, int]]]:
    """`rounds` of each channel."""
    return [rounds(op, workers, share, channel, channels) for channel, share in enumerate(parts(channels, size))]


def payload(op: Exchange, workers: int, size: int, channels: int = 1) -> Counter[Flow]:
    """The bytes of each flow in all rounds of all channels."""
    found: Counter[Flow] = Counter()
    for own in by_channel(op, workers, size, channels):
        for each in own:
            found.update(each)
    return found


def flows(op: Exchange, workers: int) -> list[Flow]:
    """Pairs of sender and receiver."""
    size = workers if op.members is None else len(op.members)
    return list(dict.fromkeys(flow for one in rounds(op, workers, size) for flow in one))


def lockstep(op: Exchange) -> bool:
    """Return True if all flows are as fast as the slowest, because a rank forwards what it has received."""
    return op.algorithm in collectives.LOCKSTEP or (bool(op.rows) and op.kind != "all_to_all")

"""The elements of a trace: operations, the roles of ranks that perform the same ones, and where ranks may be placed."""

from __future__ import annotations

from typing import Literal

import msgspec

from testbed.core.units import Duration, Size

Kind = Literal[
    "compute", "all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast", "send_recv", "send", "recv"
]
POINT_TO_POINT = ("send", "recv")
WITH_SPLITS = ("all_to_all", "all_gather", "reduce_scatter")  # whose parts may differ in size


class Operation(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A span of computing, a collective over a tensor of `bytes`, or a message to or from one peer."""

    id: str
    kind: Kind
    duration: Duration | None = None
    bytes: Size | None = None
    after: tuple[str, ...] = ()
    ranks: tuple[int, ...] | None = None  # version 1: which workers compute; None: all
    algorithm: str | None = None  # algorithm of a collective, if not the default (`testbed.traces.trace.ALGORITHMS`)
    layer: int | None = (
        None  # number of the model's layer, from the front (0); lower ones are sent first among concurrent messages
    )
    importance: float | tuple[float, ...] | None = (
        None  # of its packets, for transports that rank packets (`testbed.transports.datagram.tags`)
    )
    flops: float | None = None  # a compute by its work: floating-point operations,
    memory_bytes: Size | None = None  # and bytes to and from the device's memory
    group: str | None = None  # version 2: which process group communicates; None: the only one
    # Bytes that a rank sends to each member (all-to-all), or each member's part, in the group's order; None: equal parts.
    splits: tuple[Size, ...] | None = None
    peer: int | str | None = (
        None  # of a message: a rank, or "+1": steps along the group's list (without a group: ranks)
    )
    tag: int = 0  # by which a receive finds its send

    @property
    def computes(self) -> bool:
        return self.kind == "compute"

    @property
    def point_to_point(self) -> bool:
        return self.kind in POINT_TO_POINT

    @property
    def by_work(self) -> bool:
        """Return True if a device determines the duration."""
        return self.flops is not None or self.memory_bytes is not None

    @property
    def size(self) -> int:
        """Bytes of its tensor; of an uneven all-to-all those that one rank holds."""
        return int(self.bytes) if self.bytes is not None else sum(map(int, self.splits or ()))


class Role(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Ranks that execute the same operations, such as those of one pipeline stage."""

    name: str
    ranks: tuple[int, ...]
    operations: tuple[Operation, ...]


class Placement(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Constraints on the placement of a trace's ranks."""

    inside: tuple[str, ...] = ()  # groups whose ranks share a server


Groups = dict[str, tuple[tuple[int, ...], ...]]

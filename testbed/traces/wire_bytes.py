"""Bytes that one rank puts on the wire in an exchange."""

from __future__ import annotations

from testbed.traces.operations import Kind


def usual_bytes(kind: Kind, size: int, ranks: int) -> float:
    """The bytes that each rank sends where a collective uses the default algorithm: a ring, all others at once, or a chain."""
    match kind:
        case "all_reduce":
            return 2 * size * (ranks - 1) / ranks
        case "all_gather" | "reduce_scatter" | "all_to_all":
            return size * (ranks - 1) / ranks
        case _:
            return size


def on_the_wire(kind: Kind, size: int, ranks: int) -> tuple[int, int]:
    """Bytes that one rank sends and receives in a collective of ``size`` bytes as usual, or in a message."""
    each = 0 if kind == "compute" else int(usual_bytes(kind, size, ranks))
    return 0 if kind == "recv" else each, 0 if kind == "send" else each

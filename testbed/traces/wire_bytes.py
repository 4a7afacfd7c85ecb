"""Bytes that one rank puts on the wire in an exchange."""

from __future__ import annotations

from testbed.traces.operations import Kind


def on_the_wire(kind: Kind, size: int, ranks: int) -> tuple[int, int]:
    """Bytes that one rank sends and receives in a collective of ``size`` bytes as usual (a ring), or in a message."""
    match kind:
        case "compute":
            return 0, 0
        case "send":
            return size, 0
        case "recv":
            return 0, size
        case "send_recv" | "broadcast":
            return size, size
        case "all_reduce":
            part = 2 * size * (ranks - 1) // ranks
        case _:
            part = size * (ranks - 1) // ranks
    return part, part

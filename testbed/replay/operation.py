"""The unit that a worker replays: an operation of an iteration."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Operation:
    """The fields of `testbed.core.runs.plan.Operation`, which would need a library here."""

    id: str
    kind: str
    after: tuple[str, ...] = ()
    ranks: tuple[int, ...] | None = None
    duration_ns: int = 0
    bytes: int = 0
    algorithm: str = ""
    layer: int = 0  # from the front
    importance: tuple[float, ...] = ()
    members: tuple[int, ...] | None = None  # members; None: all ranks
    exchange: int = 0  # its number, the same on all members
    group: int = 0  # by its number
    rows: tuple[tuple[int, ...], ...] = ()  # of uneven parts (`testbed.replay.uneven`)
    inside_ns: int | None = None  # duration inside a server; None: it crosses the network

    @property
    def computes(self) -> bool:
        return self.kind == "compute"

    @property
    def message(self) -> bool:
        """Return True for a message from one rank to another."""
        return self.kind in ("send", "recv")

    @property
    def stream(self) -> tuple[int, ...]:
        """Exchanges of one stream follow each other."""
        assert self.members is not None
        return (self.group, *self.members) if self.message else (self.group,)

"""What runs in a host on behalf of a job: a replay of a trace, or a real program."""

from __future__ import annotations

from typing import Any, NoReturn, Protocol

from testbed.transports import Connection


class Participant(Protocol):
    """One rank of one job; ``flows`` are those that it sends, once connected."""

    job: int
    rank: int
    host: str
    what: str  # in messages
    flows: list[Connection]
    counters: int | None  # a file in memory, if its transport is not the kernel's

    def connect(self, at_ns: int) -> None: ...
    def start(self, at_ns: int, wait_from_ns: int, offset_ns: int | None = None) -> None:
        """``offset_ns``: in place of its job's, of one that had to wait for GPUs."""
        ...

    def grant(self) -> None:
        """It may communicate, which it has asked for."""
        ...

    def fileno(self) -> int: ...
    def lines(self) -> list[Any]:
        """What it has said, in whole lines; waits for some. Raises `TestbedError` if it is gone."""
        ...

    def was_killed(self) -> bool: ...
    def died(self) -> NoReturn: ...
    def kill(self) -> None: ...
    def close(self) -> None: ...

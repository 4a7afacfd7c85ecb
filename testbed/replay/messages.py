"""The outcome of an iteration's messages where some of their bytes may be lost: a row for each peer, end and stage, or each message."""

from __future__ import annotations

import threading
from typing import Any, get_args

from testbed.transports import Closed, Delivery, Message

CLOSES = get_args(Closed)
ALL = -1  # of its operations, and their parts


class Messages:
    """The rows of one iteration of one worker."""

    def __init__(self, *, full: bool = False) -> None:
        self.full = full
        self.rows: dict[tuple[int, str, str, int, int], list[int]] = {}
        self.lost: dict[tuple[int, str, str, int, int], str] = {}  # of each message, if logged per message
        self.lock = threading.Lock()  # several end at once

    def add(self, peer: int, message: Message, sent: bool, delivery: Delivery) -> None:
        """Add a message that has ended."""
        with self.lock:
            which = (message.operation, message.part) if self.full else (ALL, ALL)
            key = (peer, "send" if sent else "receive", message.stage, *which)
            row = self.rows.setdefault(key, [0] * (6 + len(CLOSES)) + [0, 0])
            if self.full and not sent:
                self.lost[key] = " ".join(f"{at}+{size}" for at, size in delivery.holes)
            missing = sum(size for _, size in delivery.holes)
            for place, value in enumerate(
                (1, delivery.bytes, delivery.delivered, missing, len(delivery.holes), delivery.resent)
            ):
                row[place] += value
            row[6 + CLOSES.index(delivery.closed)] += 1
            if delivery.first_ns:
                row[-2] = min(row[-2] or delivery.first_ns, delivery.first_ns)
            row[-1] = max(row[-1], delivery.last_ns)

    def to_rows(self, start_ns: int) -> list[list[Any]]:
        """Return the rows of `testbed.core.runs.rows.Messages`, without job and worker; times in ns after ``start_ns``.

        Times are 0 for a message of which nothing arrived.
        """
        return [
            [*key[:3], *row[:-2], *(at - start_ns if at else 0 for at in row[-2:]), *key[3:], self.lost.get(key, "")]
            for key, row in sorted(self.rows.items())
        ]

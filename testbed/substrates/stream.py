"""What `testbed.inside` says, as any substrate hears it: lines of JSON, then an archive."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from typing import Any

from testbed.errors import TestbedError, error_for_exit

Event = dict[str, Any]
More = Callable[[], bytes]  # blocks for the next bytes; none: the end


def listen(more: More, on_event: Callable[[Event], None]) -> bytes | None:
    """Hand out every event; the archive, or None if the stream ended without one.

    Raises what the run raised.
    """
    stream = _Stream(more)
    while line := stream.line():
        if not line.startswith(b"{"):  # a kernel's own words: a user-mode Linux shares its console with us
            continue
        try:
            event = json.loads(line)
        except ValueError as error:
            raise TestbedError(f"the run said what nobody understands: {line[:200]!r}; is the disk full?") from error
        if event["event"] == "error":
            raise error_for_exit(event["code"], event["message"])
        if event["event"] == "results":
            archive = stream.exactly(event["size"])
            if hashlib.sha256(archive).hexdigest() != event["sha256"]:
                raise TestbedError("the results arrived damaged; is the disk full?")
            return archive
        on_event(event)
    return None


class _Stream:
    def __init__(self, more: More) -> None:
        self.more, self.buffer = more, b""

    def line(self) -> bytes:
        while b"\n" not in self.buffer:
            data = self.more()
            if not data:
                return b""
            self.buffer += data
        line, _, self.buffer = self.buffer.partition(b"\n")
        return line

    def exactly(self, size: int) -> bytes:
        pieces, left = [self.buffer], size - len(self.buffer)
        while left > 0:
            data = self.more()
            if not data:
                raise TestbedError("the run ended while it handed over its results")
            pieces.append(data)
            left -= len(data)
        return b"".join(pieces)[:size]

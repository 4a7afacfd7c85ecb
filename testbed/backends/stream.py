"""The output of `testbed.linux.run_in_kernel`, as any backend reads it: lines of JSON, then an archive.

It may come from another machine, or from a damaged guest. All input is therefore checked against the events that a run can
send, and its size is limited.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable

import msgspec

from testbed.core.errors import TestbedError, error_for_exit
from testbed.core.runs.events import Error, Event, Results
from testbed.core.text import quoted

More = Callable[[], bytes]  # blocks for the next bytes; none: the end

MOST_LINE_BYTES = 1 << 20
MOST_ARCHIVE_BYTES = 2 << 30


def listen(
    more: More,
    on_event: Callable[[Event], None],
    most_bytes: int = MOST_ARCHIVE_BYTES,
    said: Callable[[bytes], None] = lambda _words: None,
) -> bytes | None:
    """Pass on every event, including the one that announces results, and return the archive; None if the stream has none.

    ``most_bytes`` limits the archive. ``said`` is called with each line of kernel messages, because user-mode Linux
    writes them to the same console. Raises the error of the run.
    """
    stream = _Stream(more)
    while line := stream.line():
        if not line.startswith(b"{"):
            said(line)
            continue
        try:
            event = msgspec.json.decode(line, type=Event)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            words = quoted(line[:200].decode("utf-8", "backslashreplace"), 200)
            raise TestbedError(
                f"the run's output cannot be read: {words} ({error}). Check that the disk is not full, and run it again."
            ) from error
        if isinstance(event, Error):
            raise error_for_exit(event.code, event.message)
        if isinstance(event, Results):
            if not 0 <= event.size <= most_bytes:
                raise TestbedError(
                    f"the run has {event.size / 1e9:.1f} GB of results, but the limit is {most_bytes / 1e9:.1f} GB. "
                    "Use a longer --sample-interval."
                )
            on_event(event)
            archive = stream.exactly(event.size)
            if hashlib.sha256(archive).hexdigest() != event.sha256:
                raise TestbedError("the results arrived damaged. Check that the disk is not full, and run it again.")
            return archive
        on_event(event)
    return None


class _Stream:
    def __init__(self, more: More) -> None:
        self.more, self.buffer = more, bytearray()

    def line(self) -> bytes:
        looked = 0
        while (end := self.buffer.find(b"\n", looked)) < 0:
            looked = len(self.buffer)
            data = self.more()
            if not data:
                return b""
            if looked + len(data) > MOST_LINE_BYTES and b"\n" not in data:
                raise TestbedError(
                    f"the run printed a line of more than {MOST_LINE_BYTES >> 20} MB, which is not an event. Check custom programs of the run for such output."
                )
            self.buffer += data
        line = bytes(self.buffer[: end + 1])
        del self.buffer[: end + 1]
        return line

    def exactly(self, size: int) -> bytes:
        while len(self.buffer) < size:
            data = self.more()
            if not data:
                raise TestbedError("the run ended while it transferred its results. Run it again.")
            self.buffer += data
        return bytes(self.buffer[:size])

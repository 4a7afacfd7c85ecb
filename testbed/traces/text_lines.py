"""Logs, a line at a time."""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path

from testbed.traces.json_stream import Source


def lines(path: Path) -> Iterator[str]:
    """Yield the lines of a text file of any size, each with its end; invalid UTF-8 is replaced."""
    with Source(path) as source:
        for line in io.TextIOWrapper(io.BufferedReader(source), "utf-8", errors="replace"):
            source.progress()
            yield line

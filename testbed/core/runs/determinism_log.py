"""Counts of a results folder's runs that were repeated on a free executor, and that gave the same bytes: ``repeated.json``."""

from __future__ import annotations

from pathlib import Path

import msgspec

from testbed.core import input_files

MOST_BYTES = input_files.MEGABYTE
FILE = "repeated.json"


class Sample(msgspec.Struct, frozen=True):
    """The findings of ``--verify-sample`` in the last sweep that used it."""

    of: int  # runs of the sweep
    repeated: int
    differing: tuple[str, ...]  # run directories, and the reason where a repetition failed

    def __str__(self) -> str:
        identical = self.repeated - len(self.differing)
        return f"{self.repeated} of {self.of} runs, on any free worker: {identical} of them byte-identical"


def read(results: Path) -> Sample | None:
    """Return the stored sample; None if the file is missing or was not written by this release."""
    try:
        return msgspec.json.decode(input_files.read_bytes(results / FILE, MOST_BYTES), type=Sample)
    except (input_files.FileError, msgspec.MsgspecError):
        return None

"""How many runs of a results folder were repeated on whoever was free, and came out alike: ``repeated.json``."""

from __future__ import annotations

from pathlib import Path

import msgspec

from core.runs import rundir

FILE = "repeated.json"


class Repeated(msgspec.Struct, frozen=True):
    """Of the last sweep with ``--verify-sample``."""

    of: int  # runs of the sweep
    repeated: int
    differing: tuple[str, ...]  # folders, and why, where a repetition failed

    def __str__(self) -> str:
        alike = self.repeated - len(self.differing)
        return f"{self.repeated} of {self.of} runs, on whoever was free: {alike} of them byte-identical"


def write(said: Repeated, results: Path) -> None:
    """Raises `MachineError` where the folder cannot be written."""
    rundir.write_text(results / FILE, msgspec.json.format(msgspec.json.encode(said)).decode() + "\n")


def read(results: Path) -> Repeated | None:
    """None if there is no such file, or none that this release wrote."""
    try:
        return msgspec.json.decode((results / FILE).read_bytes(), type=Repeated)
    except (OSError, msgspec.MsgspecError):
        return None

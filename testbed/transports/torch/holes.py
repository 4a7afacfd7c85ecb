"""Missing ranges of gradients, as lines of JSON: recorded by a lossy training, and replayed by another."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

from testbed.core.errors import RequestError
from testbed.core.text import shown
from testbed.transports import Span

VERSION = 1


@dataclass(frozen=True)
class Name:
    """A message of a round, as one of its two ends has it."""

    round: int
    bucket: int
    part: int
    peer: int
    end: str  # "send" or "receive"


def path_of(folder: Path, rank: int) -> Path:
    return folder / f"holes-{rank}.jsonl"


class Writer:
    """A file with a line for each message of a rank; a killed training keeps the lines that were written."""

    def __init__(self, folder: Path, rank: int, ranks: int) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._file: TextIO = path_of(folder, rank).open("w", buffering=1)
        self._file.write(json.dumps({"version": VERSION, "rank": rank, "ranks": ranks}) + "\n")

    def __call__(self, name: Name, size: int, holes: tuple[Span, ...]) -> None:
        self._file.write(json.dumps([name.round, name.bucket, name.part, name.peer, name.end, size, holes]) + "\n")

    def close(self) -> None:
        self._file.close()


@dataclass(frozen=True)
class Recording:
    """The record of a rank."""

    path: Path
    messages: Mapping[Name, tuple[int, tuple[Span, ...]]]

    @classmethod
    def read(cls, folder: Path, rank: int, ranks: int) -> Recording:
        """Read the recording of a rank. Raises `RequestError` if there is none, or one of another training."""
        path = path_of(folder, rank)
        try:
            head, *lines = [json.loads(line) for line in path.read_text().splitlines()]
            expected = {"version": VERSION, "rank": rank, "ranks": ranks}
            if head != expected:
                raise RequestError(
                    f"{path} is from another training: {shown(head)} instead of {expected}. Record it again"
                )
            messages = {
                Name(int(round), int(bucket), int(part), int(peer), str(end)): (
                    int(size),
                    tuple((int(at), int(n)) for at, n in holes),
                )
                for round, bucket, part, peer, end, size, holes in lines
            }
        except OSError as error:
            raise RequestError(
                f"{path}: there are no missing ranges to repeat ({error.strerror}). Record them first"
            ) from error
        except (ValueError, TypeError) as error:
            raise RequestError(f"{path} is no recording of missing ranges: {shown(error)}") from error
        return cls(path, messages)

    def holes(self, name: Name, size: int) -> tuple[Span, ...]:
        """Return the missing ranges of one message.

        Raises `RequestError` if it was not recorded, or had another size.
        """
        found = self.messages.get(name)
        if found is None:
            raise RequestError(
                f"{self.path} ends before round {name.round}, bucket {name.bucket}: nothing to repeat. Record a longer training"
            )
        if found[0] != size:
            raise RequestError(
                f"{self.path}: round {name.round}, bucket {name.bucket} had {found[0]} bytes, and has {size} here: "
                "another model, or other buckets"
            )
        return found[1]

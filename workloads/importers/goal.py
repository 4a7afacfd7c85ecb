"""GOAL schedules of LogGOPSim and ATLAHS, as text (github.com/spcl/LogGOPSim, github.com/spcl/atlahs).

.. code-block:: text

    num_ranks 2
    rank 0 {
    l1: calc 100
    l2: send 10b to 1 tag 3 cpu 0 nic 0
    l2 requires l1
    }
    rank 1 {
    l1: recv 10b from 0 tag 3
    }

``calc`` is in nanoseconds, as in LogGOPSim. ``requires`` waits for the end of an operation, ``irequires`` for its beginning. Computes of one
``cpu`` run one after the other. A file has all ranks and is taken for one iteration. Messages that are surely a collective become one
(`testbed.traces.message_patterns`).
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from pathlib import Path

from testbed.core.errors import within
from testbed.core.text import quoted
from testbed.core.units import Duration, Size
from testbed.traces import message_patterns
from testbed.traces.importing import JobProfile, Profile, Request
from testbed.traces.json_stream import Source
from testbed.traces.matching import MOST_STEPS
from testbed.traces.message_patterns import Recognised, Task
from testbed.traces.trace import TraceError

TITLE = "GOAL schedule of LogGOPSim or ATLAHS, as text"
USES = frozenset({"group"})

MOST_RANKS = 16_384
_SERIAL = 0.01  # part by which computing may be longer without a warning
_START = re.compile(rb"(?:\s|//[^\n]*\n|/\*.*?\*/)*num_ranks\s+\d", re.DOTALL)
_TOKEN = re.compile(r"\s+|;|(//.*)|(/\*)|(\{|\}|:|-?\d+|[A-Za-z_][A-Za-z0-9_]*)")
_NUMBER = re.compile(r"-?\d{1,19}", re.ASCII)

Token = tuple[str, int]  # and its line


def recognises(head: bytes, path: Path) -> bool:
    return _START.match(head) is not None


def read(path: Path, request: Request) -> Profile:
    raise TraceError(f"{path} has all ranks of a job. Import it by itself, without files of another format")


def read_ranks(paths: list[Path], request: Request) -> JobProfile:
    if len(paths) > 1:
        raise TraceError(f"{paths[0]} and {paths[1]} are whole jobs each. Import one of them")
    (path,) = paths
    parser = _Parser(path)
    parser.parse()
    if not any(not task.computes for task in parser.tasks):
        raise TraceError(f"{path} has no send and no recv: there is nothing to exchange")
    with within(str(path)):
        found = message_patterns.recognise(parser.tasks, parser.ranks)
    return JobProfile(
        found.job, "GOAL schedule", groups=found.groups,
        assumptions=tuple(_assumed(parser.tasks, found)),
    )  # fmt: skip


def _assumed(tasks: list[Task], found: Recognised) -> Iterator[str]:
    yield "calc is in nanoseconds, and the whole schedule is one iteration"
    if found.groups:
        yield "rings and all-to-alls of messages are collectives; what a ring computes between its rounds is computed after it"
    if any(not task.computes and not task.amount for task in tasks):
        yield "a message of 0 bytes has 1 byte"
    if found.serial > _SERIAL:
        yield (
            f"warning: computes of several cpus of a rank run one after the other, and beside each other in the schedule: {found.serial:.0%} longer. "
            "Write the schedule with one GPU for each rank"
        )


class _Parser:
    """Operations of all ranks, with their dependencies."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.tasks: list[Task] = []
        self.ranks = 0
        self._tokens = _tokens(path)
        self._next: Token | None = next(self._tokens, None)
        self._line = 1

    def parse(self) -> None:
        self._word("num_ranks")
        self.ranks = self._number("num_ranks", 1, MOST_RANKS)
        there: set[int] = set()
        while self._next is not None:
            self._word("rank")
            rank = self._number("rank", 0, self.ranks - 1)
            if rank in there:
                raise self._error(f"rank {rank} is there twice")
            there.add(rank)
            self._word("{")
            self._rank(rank)
        if len(there) < self.ranks:
            missing = next(rank for rank in range(self.ranks) if rank not in there)
            raise TraceError(
                f"{self.path}: num_ranks is {self.ranks}, and rank {missing} is missing. The file may be cut off"
            )

    def _rank(self, rank: int) -> None:
        labels: dict[str, int] = {}
        waits: list[tuple[str, str, bool, int]] = []
        while (word := self._take()) != "}":
            if word in ("calc", "send", "recv") and self._peek() != ":":
                self._operation(word, rank)
                continue
            separator = self._take()
            if separator == ":":
                if word in labels:
                    raise self._error(f"the label {quoted(word)} is there twice in rank {rank}")
                labels[word] = len(self.tasks)
                self._operation(self._take(), rank)
            elif separator in ("requires", "irequires"):
                waits.append((word, self._take(), separator == "irequires", self._line))
            else:
                raise self._error(f"{quoted(separator)} follows {quoted(word)}: ':', 'requires' or 'irequires' does")
        for label, other, begun, line in waits:
            if missing := next((one for one in (label, other) if one not in labels), None):
                raise TraceError(f"{self.path}, line {line}: the label {quoted(missing)} is nowhere in rank {rank}")
            task = self.tasks[labels[label]]
            (task.started if begun else task.after).add(labels[other])

    def _operation(self, kind: str, rank: int) -> None:
        line = self._line
        if len(self.tasks) >= MOST_STEPS:
            raise TraceError(
                f"{self.path} has more than {MOST_STEPS:,} operations. A trace is one iteration: write fewer iterations or ranks"
            )
        if kind == "calc":
            task = Task(rank, "compute", self._number("calc", 0, Duration.limit), line=line)
        elif kind in ("send", "recv"):
            size = self._number(kind, 0, Size.limit)
            self._word("b")
            self._word("to" if kind == "send" else "from")
            peer = self._number("a rank", -1, self.ranks - 1)
            if peer < 0:
                raise self._error(
                    "recv from -1: from which rank it receives depends on the run, so that it cannot be replayed"
                )
            task = Task(rank, "send" if kind == "send" else "recv", size, peer, line=line)
        else:
            raise self._error(f"{quoted(kind)} is no operation: there are calc, send and recv")
        while (option := self._peek()) in ("tag", "cpu", "nic"):
            self._take()
            value = self._number(option, -1 if option == "tag" else 0, 1 << 62)
            if value < 0:
                raise self._error("tag -1: which message it takes depends on the run, so that it cannot be replayed")
            if option == "tag":
                task.tag = value
            elif option == "cpu":
                task.stream = value
        self.tasks.append(task)

    def _peek(self) -> str:
        return "" if self._next is None else self._next[0]

    def _take(self) -> str:
        if self._next is None:
            raise TraceError(f"{self.path} ends within a rank: a closing bracket is missing. The file may be cut off")
        word, self._line = self._next
        self._next = next(self._tokens, None)
        return word

    def _word(self, wanted: str) -> None:
        if (word := self._take()) != wanted:
            raise self._error(f"{quoted(word)} is where {quoted(wanted)} has to be")

    def _number(self, what: str, low: int, high: int) -> int:
        word = self._take()
        if not _NUMBER.fullmatch(word) or not low <= int(word) <= high:
            raise self._error(f"{what}: {quoted(word)} is not a whole number from {low} to {high}")
        return int(word)

    def _error(self, text: str) -> TraceError:
        return TraceError(f"{self.path}, line {self._line}: {text}")


def _tokens(path: Path) -> Iterator[Token]:
    """Words, numbers and brackets; comments are left out."""
    comment = False
    with Source(path) as source:
        try:
            for number, line in enumerate(io.TextIOWrapper(io.BufferedReader(source), "utf-8-sig"), 1):
                source.progress()
                at = 0
                while at < len(line):
                    if comment:
                        end = line.find("*/", at)
                        if end < 0:
                            break
                        comment, at = False, end + 2
                        continue
                    found = _TOKEN.match(line, at)
                    if found is None:
                        raise TraceError(
                            f"{path}, line {number}: {quoted(line[at : at + 20])} is no part of a GOAL schedule"
                        )
                    comment = found[2] is not None
                    if found[3] is not None:
                        yield found[3], number
                    at = found.end()
        except UnicodeDecodeError as error:
            raise TraceError(f"{path} is not text: {error.reason} at byte {error.start}") from error

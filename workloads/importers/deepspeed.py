"""DeepSpeed's communication log (``"comms_logger": {"enabled": true, "verbose": true, "prof_all": true}``), and its summary.

.. code-block:: text

    [2024-05-07 10:00:01,250] [INFO] [logging.py:96:log_dist] [Rank 0] comm op: all_reduce | time (ms): 12.50 | msg size: 64.0 MB | algbw (Gbps): 85.90 | busbw (Gbps): 75.16

A line is written when an exchange has ended; DeepSpeed waits for each of them, so computing never goes on meanwhile. The ratio of the two
bandwidths is (n - 1) / n, which gives the number of ranks n. The table of ``log_summary()`` counts the exchanges of each size.
"""

from __future__ import annotations

import math
import re
from collections import Counter, deque
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path

from testbed.core.text import count
from testbed.traces.importing import Profile, Request
from testbed.traces.json_stream import brief
from testbed.traces.nccl import MOST_BYTES, about
from testbed.traces.process_groups import Group
from testbed.traces.repeating import MOST, Call, about_computing, about_first, back_to_back, chosen, steps_of, untimed
from testbed.traces.text_lines import lines
from testbed.traces.trace import Kind, TraceError

TITLE = "DeepSpeed communication log (comms_logger), or its log_summary table"
USES = frozenset({"iteration", "ranks", "steps"})

_NUMBER = r"(\d{1,15}(?:\.\d{1,9})?)"
_LINE = re.compile(
    rf"comm op: ([^|\n]{{1,120}}?) (?:\| \[Caller Func: [^|\n]{{1,200}}\] )?\| time \(ms\): {_NUMBER} \| msg size: {_NUMBER} ?([KMGTPEZY]?B) "
    rf"\| algbw \(Gbps\): {_NUMBER} {{1,4}}\| busbw \(Gbps\): {_NUMBER}"
)
_RANK = re.compile(r"\[Rank (\d{1,7})\]")
_WHEN = re.compile(r"\[(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d),(\d{3})\]")
_HEADER = re.compile(r"Comm\. Op\s+Message Size\s+Count\s+Total Latency\(ms\)")
_STRAGGLERS = re.compile(r"Comm\. Op\s+Message Size\s+Count\s+Total comm lat\(ms\)")
_NAME = re.compile(r"([a-z]\w{1,60})(?: \| \[Caller Func: [^\]\n]{1,200}\])?\s*$")
_ROW = re.compile(
    rf"\s{{2,}}{_NUMBER} ?([KMGTPEZY]?B)\s+(\d{{1,12}})\s+{_NUMBER}\s+{_NUMBER}\s+{_NUMBER}\s+{_NUMBER}\s*$"
)
_UNITS: dict[str, int] = {unit: 1024**power for power, unit in enumerate(("B", "KB", "MB", "GB", "TB", "PB", "EB"))}
_KINDS: dict[str, Kind] = {
    **dict.fromkeys(("all_reduce", "all_reduce_coalesced", "inference_all_reduce"), "all_reduce"),
    **dict.fromkeys(("all_gather", "all_gather_into_tensor", "all_gather_base", "all_gather_coalesced"), "all_gather"),
    **dict.fromkeys(("reduce_scatter", "reduce_scatter_tensor", "reduce_scatter_base", "reduce_scatter_fn"), "reduce_scatter"),
    **dict.fromkeys(("all_to_all_single", "all_to_all"), "all_to_all"),
    "broadcast": "broadcast",
}  # fmt: skip
_WITH_RANKS: tuple[Kind, ...] = (
    "all_reduce",
    "all_gather",
    "reduce_scatter",
    "all_to_all",
)  # their bandwidths give the number of ranks
_MOST_RANKS = 4096
_MOST_ROWS = 1000
_MOST_EXCHANGES = 10_000  # of an iteration
_SETTING = 'Train with "comms_logger": {"enabled": true, "verbose": true, "prof_all": true}'
_FORM = "comm op: all_reduce | time (ms): 1.0 | msg size: 64.0 MB | algbw (Gbps): 4.0 | busbw (Gbps): 2.0"
_HALF = 0.005  # by which a number of two decimals may differ from what was rounded


def recognises(head: bytes, path: Path) -> bool:
    return b"comm op: " in head or b"Comm. Op " in head


def read(path: Path, request: Request) -> Profile:
    log = _Log()
    for line in lines(path):
        log.read(line)
    if log.calls:
        return _of_lines(log, request, path)
    if not log.rows:
        raise TraceError(f"{path} has no exchange that can be replayed: {'; '.join(log.lacks())}. {_SETTING}")
    return _of_table(log, request, path)


@dataclass(frozen=True, slots=True)
class _Row:
    kind: Kind
    bytes: int
    count: int


class _Log:
    """The data of a log: one rank's lines, and the last summary."""

    def __init__(self) -> None:
        self.calls: deque[Call] = deque(maxlen=MOST)
        self.count = 0
        self.rows: list[_Row] = []
        self.skipped: Counter[str] = Counter()
        self.barriers = 0
        self.unread: list[int] = []  # numbers of lines that name an exchange and could not be read
        self.tables = 0
        self._number = 0  # of the line
        self.fewest, self.most = 2.0, math.inf  # ranks, by the bandwidths
        self._begin: datetime | None = None
        self._rank = ""
        self._table = ""  # the kind of rows that are read: "" outside of a table, or the operation

    def read(self, line: str) -> None:
        self._number += 1
        at = line.find("comm op: ")
        if at >= 0:
            if (found := _LINE.match(line, at)) is not None:
                self._add(found, line[:at])
            else:
                self.unread.append(self._number)
        elif _STRAGGLERS.search(line):
            self._table = ""
        elif _HEADER.search(line):
            self._table, self.rows = "?", []
            self.tables += 1
        elif self._table and len(self.rows) < _MOST_ROWS:
            self._read_table(line)

    def _add(self, found: re.Match[str], before: str) -> None:
        rank = _RANK.search(before)
        self._rank = self._rank or (rank[1] if rank else "")
        if rank is not None and rank[1] != self._rank:
            return
        name, time_ms, size = found[1].strip(), float(found[2]), _bytes(found[3], found[4])
        kind = _KINDS.get(name)
        if kind is None or not size:
            if name == "barrier":
                self.barriers += 1
            else:
                self.skipped[name if kind is None else f"{name} of no bytes"] += 1
            return
        if kind in _WITH_RANKS:
            self._count_ranks(float(found[5]), float(found[6]))
        when = _WHEN.search(before)
        start = end = None
        if when is not None and (end := self._seconds(when)) is not None:
            start = end - time_ms / 1e3
        self.count += 1
        self.calls.append(Call(kind, size, start_s=start, end_s=end, waits=True))

    def _seconds(self, when: re.Match[str]) -> float | None:
        """Since the first line; None if this is no time."""
        try:
            moment = datetime.strptime(f"{when[1]},{when[2]}", "%Y-%m-%d %H:%M:%S,%f")
        except ValueError:
            return None
        self._begin = self._begin or moment
        return (moment - self._begin).total_seconds()

    def _count_ranks(self, algorithm: float, bus: float) -> None:
        """Bound the number of ranks n: the second bandwidth is (n - 1) / n of the first one; both are rounded."""
        if algorithm <= 0 or bus <= 0:
            return
        low, high = (bus - _HALF) / (algorithm + _HALF), (bus + _HALF) / max(algorithm - _HALF, 1e-9)
        self.fewest = max(self.fewest, 1 / (1 - low) if low < 1 else math.inf)
        self.most = min(self.most, 1 / (1 - high) if 0 < high < 1 else math.inf)

    def _read_table(self, line: str) -> None:
        if (row := _ROW.match(line)) is not None and self._table != "?":
            kind, size, count = _KINDS.get(self._table), _bytes(row[1], row[2]), int(row[3])
            if kind in _WITH_RANKS:
                self._count_ranks(float(row[6]), float(row[7]))
            if kind is not None and size and count:
                self.rows.append(_Row(kind, size, count))
            elif self._table == "barrier":
                self.barriers += count
            else:
                self.skipped[self._table if kind is None else f"{self._table} of no bytes"] += count
        elif (name := _NAME.match(line)) is not None:
            self._table = name[1]
        elif line.strip():
            self._table = ""

    def lacks(self) -> list[str]:
        """The reasons why nothing was found."""
        found = [*about(self.skipped), *self.about_unread()]
        if self.barriers:
            found.append(f"{count(self.barriers, 'barrier')}, which carry no bytes")
        if self.tables:
            found.append("a table of log_summary() without a row that can be read (the file may be cut short)")
        return found or ["neither a line 'comm op: …' nor a table of log_summary()"]

    def about_unread(self) -> list[str]:
        """The lines that name an exchange and could not be read, in a sentence."""
        if not self.unread:
            return []
        which = f"{count(len(self.unread), 'line')} of an exchange (the first is line {self.unread[0]:,})"
        return [f"{which} could not be read, and may be cut short; a complete line is: {_FORM}"]

    def ranks(self, request: Request) -> int:
        """How many there are; 0: not known."""
        if request.ranks is not None:
            return request.ranks
        if not self.fewest <= self.most or self.fewest > _MOST_RANKS:
            return 0
        ranks: int = math.ceil(self.fewest - 1e-9)
        return ranks if ranks <= self.most < ranks + 1 else 0


def _bytes(number: str, unit: str) -> int:
    return round(float(number) * _UNITS.get(unit, 0))


def _sized(kind: Kind, part: int, ranks: int, path: Path) -> int:
    """Bytes of the whole tensor: DeepSpeed writes one rank's part of an all-gather."""
    if kind == "all_gather" and not ranks:
        raise TraceError(
            f"{path}: the whole size of its all-gathers is unknown, because its bandwidths do not tell how many ranks there are. Give their number with --ranks"
        )
    size = part * ranks if kind == "all_gather" else part
    if size > MOST_BYTES:
        raise TraceError(f"{path}: the size {brief(part)} of its {kind} is implausible. Check the file")
    return size


def _of_lines(log: _Log, request: Request, path: Path) -> Profile:
    ranks = log.ranks(request)
    calls: list[Call] = []
    until = -math.inf
    for one in log.calls:
        start, end = one.start_s, one.end_s
        if start is not None and end is not None:
            start = min(max(start, until), end)
            until = max(until, end)
        calls.append(
            replace(one, bytes=_sized(one.kind, one.bytes, ranks, path), group=Group("", ranks), start_s=start)
        )
    calls, groups = chosen(calls, None, path)
    steps, assumed = steps_of(calls, request, path)
    said = [*_about(log, ranks, request), *about(log.skipped), *assumed, *about_first(log.count)]
    said += [f"left out: {text}" for text in log.about_unread()]
    if not back_to_back(steps) and request.iteration is None:
        said.append(
            "DeepSpeed waits for each exchange that it logs, so computing stands still meanwhile; without the log it may go on"
        )
        said.append("times are those of the log's lines, to a millisecond")
    return Profile(
        steps,
        "DeepSpeed communication log",
        assumptions=tuple(said),
        groups=tuple(groups),
        back_to_back=back_to_back(steps),
        timed=calls[0].start_s is not None,
    )


def _of_table(log: _Log, request: Request, path: Path) -> Profile:
    if request.steps is None:
        raise TraceError(
            f"{path} has a table of log_summary() and no line for each exchange: over how many training steps it counts is unknown. "
            'Give the number of steps with --steps, or train with "verbose": true in comms_logger'
        )
    ranks = log.ranks(request)
    calls: list[Call] = []
    rare = 0
    for row in log.rows:
        each, rest = divmod(row.count, request.steps)
        rare += rest
        if len(calls) + each > _MOST_EXCHANGES:
            raise TraceError(
                f"{path}: {row.count:,} exchanges in {request.steps} steps are more than {_MOST_EXCHANGES:,} an iteration. --steps {request.steps} may be too few"
            )
        if each:
            calls += [Call(row.kind, _sized(row.kind, row.bytes, ranks, path), Group("", ranks))] * each
    if not calls:
        raise TraceError(
            f"{path}: no exchange of its table is counted {request.steps} times or more, once for each step. Give a smaller --steps"
        )
    calls, groups = chosen(calls, None, path)
    step = untimed(calls, request.iteration)
    said = [
        *_about(log, ranks, request),
        *about(log.skipped),
        f"the table counts over {request.steps} steps: --steps says so",
    ]
    said += [
        "the order of exchanges is that of the table: the log does not tell another one",
        about_computing(request.iteration),
    ]
    if rare:
        said.append(f"{rare} exchanges that do not take place in every step were left out")
    return Profile(
        [step],
        "DeepSpeed log_summary",
        assumptions=tuple(said),
        groups=tuple(groups),
        back_to_back=back_to_back([step]),
        timed=False,
    )


def _about(log: _Log, ranks: int, request: Request) -> list[str]:
    said = ["all exchanges are taken to be of one process group: the log names none"]
    if ranks and not request.ranks:
        said.append(f"{ranks} ranks follow from the ratio of the log's two bandwidths, which is {ranks - 1}/{ranks}")
    said.append("sizes are those of the log, rounded to two decimals of their unit")
    return said

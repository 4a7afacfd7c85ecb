"""NCCL Inspector (``plugins/profiler/inspector``): a JSON object for each exchange that has ended, one after the other.

.. code-block:: text

    {"header": {"id": "0x7d3f", "comm_name": "DP", "rank": 2, "n_ranks": 8, "nnodes": 1},
     "metadata": {"inspector_output_format_version": "v4.0", "dump_timestamp_us": 1748030377748202, "hostname": "node1", "pid": 812},
     "coll_perf": {"coll": "AllReduce", "coll_sn": 7, "coll_msg_size_bytes": 4194304, "coll_exec_time_us": 450}}

``NCCL_INSPECTOR_DUMP_VERBOSE=1`` adds when the kernel of each channel started and ended (``event_trace_ts``). Without it, the time at which
an object was written gives the end of an exchange, if the Inspector writes often enough. Exchanges of less than
``NCCL_INSPECTOR_DUMP_MIN_SIZE_BYTES`` (8192) are not in the file.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from testbed.core.text import quoted, shown
from testbed.traces.importing import Profile, Request
from testbed.traces.json_stream import LINES, brief, items, number
from testbed.traces.nccl import MOST_BYTES, Logged, about, calls_of, kind_of, whole_bytes
from testbed.traces.process_groups import Group
from testbed.traces.repeating import MOST, Call, about_first, back_to_back, chosen, steps_of
from testbed.traces.trace import TraceError

TITLE = "NCCL Inspector, JSON lines (coll_perf, p2p_perf)"
USES = frozenset({"group", "iteration", "steps"})

_MOST_GROUPS = 1000
_MOST_CHANNELS = 1024
_PER_WRITE = 2  # exchanges, on average, that may be written at one time, for that time to be when they ended


def recognises(head: bytes, path: Path) -> bool:
    return head.lstrip()[:1] == b"{" and b'"header"' in head and (b'"coll_perf"' in head or b'"p2p_perf"' in head)


def read(path: Path, request: Request) -> Profile:
    record = _Record(path)
    for item in items(path, LINES):
        record.read(item)
    if not record.seen:
        raise TraceError(
            f"{path} has no exchange that can be replayed. {'; '.join(about(record.skipped)) or 'It has none at all'}"
        )
    logged, about_times = record.timed()
    calls, said = calls_of(logged)
    calls, groups = chosen(calls, request.group, path)
    if calls[0].start_s is None and len({(one.group, one.kind in ("send", "recv")) for one in calls}) > 1:
        raise TraceError(
            f"{path}: in which order its communicators were used is unknown, because its exchanges have no times. Run with "
            "NCCL_INSPECTOR_DUMP_VERBOSE=1, or import one process group with --group"
        )
    steps, assumed = steps_of(calls, request, path)
    said += [*about_times, *record.said(), *about(record.skipped), *assumed]
    ranks = {one.rank for one in logged}
    return Profile(
        steps, measured_by=f"NCCL Inspector {record.version}".strip(), assumptions=tuple(said), groups=tuple(groups),
        rank=ranks.pop() if len(ranks) == 1 else None, back_to_back=back_to_back(steps),
        timed=calls[0].start_s is not None,
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Seen:
    """An exchange, with its times in microseconds: of its kernels, or 0, and when it was written."""

    logged: Logged
    start: int
    end: int
    lasted: int
    written: int


class _Record:
    """The exchanges of one rank of a file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.version = ""
        self.seen: deque[_Seen] = deque(maxlen=MOST)
        self.skipped: Counter[str] = Counter()
        self._objects = 0
        self._exchanges = 0
        self._process: tuple[str, str] | None = None
        self._ranks: dict[str, int] = {}  # of each communicator, the rank that is imported
        self._several: set[str] = set()  # communicators of several ranks of this process
        self._others = 0

    def read(self, item: dict[str, Any]) -> None:
        self._objects += 1
        where = f"{self.path}: object {self._objects}"
        header, metadata = self._part(item, "header", where), self._part(item, "metadata", where)
        process = (shown(metadata.get("hostname", ""), 80), shown(metadata.get("pid", ""), 20))
        self._process = self._process or process
        if process != self._process:
            self._others += 1
            return
        self.version = self.version or shown(metadata.get("inspector_output_format_version", ""), 20)
        name = shown(header.get("id", ""), 40)
        rank = int(number(header, "rank", where))
        if self._ranks.setdefault(name, rank) != rank:
            self._several.add(name)
            return
        if len(self._ranks) > _MOST_GROUPS:
            raise TraceError(f"{where}: it is of more than {_MOST_GROUPS} communicators")
        description = shown(header.get("comm_name", ""), 80)
        group = Group(name, int(number(header, "n_ranks", where)), "" if description == "unknown" else description)
        self._add("p2p" if "p2p_perf" in item else "coll", item, group, rank, metadata, where)

    def _part(self, item: dict[str, Any], key: str, where: str) -> dict[str, Any]:
        part = item.get(key)
        if not isinstance(part, dict):
            raise TraceError(f"{where}: {key!r} is {brief(part)}, which is no object")
        return part

    def _add(
        self, of: str, item: dict[str, Any], group: Group, rank: int, metadata: dict[str, Any], where: str
    ) -> None:
        perf = self._part(item, f"{of}_perf", where)
        name = perf.get(of)
        if not isinstance(name, str):
            raise TraceError(f"{where}: {of!r} is {brief(name)}, which is not the name of a collective")
        size = number(perf, f"{of}_msg_size_bytes", where)
        kind = kind_of(name)
        if kind is None or not size:
            self.skipped[name if kind is None else f"{name} of no bytes"] += 1
            return
        peer = str(int(number(perf, "p2p_peer", where))) if of == "p2p" else ""
        whole = whole_bytes(kind, int(size), group.workers, where)
        if not 0 < whole <= MOST_BYTES or size != int(size):
            raise TraceError(f"{where}: '{of}_msg_size_bytes' is {brief(size)}, which is implausible. Check the file")
        lasted = int(number(perf, f"{of}_exec_time_us", where))
        start, end = self._kernels(perf, of, where)
        written = int(number(metadata, "dump_timestamp_us", where)) if "dump_timestamp_us" in metadata else 0
        self._exchanges += 1
        self.seen.append(
            _Seen(Logged(Call(kind, whole, group, peer), rank), start, end or start + lasted, lasted, written)
        )

    def _kernels(self, perf: dict[str, Any], of: str, where: str) -> tuple[int, int]:
        """When the first channel's kernel started and the last one's ended; 0: not recorded."""
        times = perf.get("event_trace_ts")
        if not isinstance(times, dict):
            return 0, 0
        kernels = times.get("kernel_events")
        own = [one for one in kernels[:_MOST_CHANNELS] if isinstance(one, dict)] if isinstance(kernels, list) else []
        starts = [int(number(one, "kernel_start_ts", where)) for one in own if one.get("kernel_start_ts")]
        ends = [int(number(one, "kernel_stop_ts", where)) for one in own if one.get("kernel_stop_ts")]
        start = min(starts, default=0) or int(number(times, f"{of}_start_ts", where))
        return start, max(ends) if ends and max(ends) >= start else 0

    def timed(self) -> tuple[list[Logged], list[str]]:
        """The exchanges in their order, with times as far as there are some, and what that assumes."""
        if all(one.start for one in self.seen):
            return _in_time([(one.logged, one.start, one.end) for one in self.seen]), []
        moments = {one.written for one in self.seen}
        if all(one.written for one in self.seen) and len(moments) > 2 and _PER_WRITE * len(moments) >= len(self.seen):
            said = [
                "an exchange is taken to have ended when the Inspector wrote it: NCCL_INSPECTOR_DUMP_VERBOSE=1 records when it did"
            ]
            return _in_time([(one.logged, one.written - one.lasted, one.written) for one in self.seen]), said
        return [one.logged for one in self.seen], [
            "the times at which the Inspector wrote do not tell when exchanges took place: NCCL_INSPECTOR_DUMP_VERBOSE=1 records that"
        ]

    def said(self) -> list[str]:
        said = [
            "exchanges below NCCL_INSPECTOR_DUMP_MIN_SIZE_BYTES (8192) are not in the file",
            *about_first(self._exchanges),
        ]
        if len(self._several) > 1:
            raise TraceError(
                f"{self.path}: its process is of several ranks in {len(self._several)} communicators, so which ranks are one GPU is unknown. "
                "Run a process for each GPU, or import the file of another process"
            )
        if self._several:
            (name,) = self._several
            said.append(
                f"the process has several ranks of {quoted(name)}: rank {self._ranks[name]} is imported, and the others are taken to do the same"
            )
        if self._others:
            said.append(
                f"{self._others} exchanges of other processes than the first one were left out: import a file for each"
            )
        return said


def _in_time(exchanges: Sequence[tuple[Logged, int, int]]) -> list[Logged]:
    begin = min(start for _, start, _ in exchanges)
    return [
        replace(one, call=replace(one.call, start_s=(start - begin) / 1e6, end_s=(max(start, end) - begin) / 1e6))
        for one, start, end in sorted(exchanges, key=lambda entry: entry[1])
    ]

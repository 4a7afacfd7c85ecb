"""Nsight Systems: ``nsys profile --trace=cuda,nvtx``, then ``nsys export --type sqlite``.

Kernels give the computing and when NCCL ran; the calls of the CUDA runtime give their launches. NCCL's own NVTX ranges (``ncclAllReduce``)
have the bytes and the communicator in their payload. The ranges on a thread up to the launch of an NCCL kernel are what that kernel carries
out. Steps are NVTX ranges such as ``ProfilerStep#3``, ``step 3`` or ``iteration``; without them, the exchanges that recur.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from testbed.core.text import quoted, shown
from testbed.traces.importing import Profile, Request
from testbed.traces.kineto_events import Collective, Events, Kernel
from testbed.traces.kineto_steps import steps_of
from testbed.traces.nccl import MOST_BYTES, Logged, all_to_all, kind_of, whole_bytes
from testbed.traces.nsys_tables import MAGIC, Tables
from testbed.traces.nvtx_payloads import COMMUNICATOR, PEER, RANK, RANKS, SIZE, Values, schemas
from testbed.traces.process_groups import Group
from testbed.traces.pytorch import COMMUNICATION
from testbed.traces.repeating import Call, iterations
from testbed.traces.trace import TraceError

TITLE = "Nsight Systems export, SQLite (nsys export --type sqlite)"
USES = frozenset({"group", "sizes", "ranks", "steps"})

_KERNELS, _MEMCPY, _MEMSET = (f"CUPTI_ACTIVITY_KIND_{name}" for name in ("KERNEL", "MEMCPY", "MEMSET"))
_PROCESS = 1 << 24  # a thread's number in it, in globalTid
_RANGES = "eventType IN (59, 60)"  # push and pop, start and end
_STEP = re.compile(r"(?i)((?:.{0,80}\W)?(?:\w{0,40})(?:step|iter|iteration|batch)\W{0,3})(\d{1,9})?\W{0,3}")
_ENDS_STEPS = re.compile(r"(?i)optimizer|zero_grad|lr_|scheduler")
_MOST = 500_000  # NCCL kernels and ranges
_LATEST_NS = 1 << 62
_SIZES = (
    "NCCL writes them into NVTX ranges (NCCL 2.19 and later, not within CUDA graphs): profile with nsys profile --trace=cuda,nvtx and export with a "
    "recent nsys. Or give them with --bytes"
)


def recognises(head: bytes, path: Path) -> bool:
    return head.startswith(MAGIC)


def read(path: Path, request: Request) -> Profile:
    with path.open("rb") as file:
        if file.read(len(MAGIC)) != MAGIC:
            raise TraceError(
                f"{path} is packed, or no SQLite database: unpack it, or export it with nsys export --type sqlite"
            )
    with Tables(path) as tables:
        export = _Export(tables, request)
        export.read()
        windows, names, said = export.windows()
        steps, groups, about = steps_of(export.events, windows, names, [""] * len(names), request, path)
        return Profile(
            steps, measured_by="Nsight Systems", on=export.hardware(), assumptions=(*export.said, *said, *about), groups=tuple(groups),
            rank=export.rank,
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Range:
    """An NVTX range of NCCL; times in microseconds."""

    function: str
    start: float
    end: float
    thread: int
    values: Values


class _Export:
    """The data of an export: the events of one process on one GPU."""

    def __init__(self, tables: Tables, request: Request) -> None:
        self.tables, self.path, self.request = tables, tables.path, request
        self.events = Events()
        self.said: list[str] = []
        self.rank: int | None = None
        self._process = 0
        self._ranges: list[_Range] = []
        self._texts: dict[int, str] = {}

    def read(self) -> None:
        gpus = self._gpus()
        self._process, device = min(gpus)
        self.events = gpus[self._process, device]
        if len(gpus) > 1:
            self.said.append(
                f"{len(gpus)} GPUs are in the file: the first one is imported, and the others are taken to do the same"
            )
        launched = self._launches()
        self._read_ranges()
        self._join(launched)

    def _gpus(self) -> dict[tuple[int, int], Events]:
        """The GPUs that run NCCL's kernels, by process and number."""
        if not self.tables.columns(_KERNELS):
            raise TraceError(f"{self.path} has no table {_KERNELS}: profile with nsys profile --trace=cuda,nvtx")
        names = self.tables.strings("value LIKE '%ccl%' OR value LIKE '%hcom%'")
        nccl = {number: name for number, name in names.items() if COMMUNICATION.search(name)}
        gpus: defaultdict[tuple[int, int], Events] = defaultdict(Events)
        for table in (_KERNELS, _MEMCPY, _MEMSET):
            columns = (
                "start",
                "end",
                "deviceId",
                "streamId",
                "correlationId",
                "globalPid",
                "shortName",
                "demangledName",
            )
            for start, end, device, stream, correlation, process, *named in self.tables.rows(table, columns):
                span = self._span(start, end, table)
                events = gpus[_whole(process) // _PROCESS, _whole(device)]
                name = (
                    next((nccl[one] for one in named if isinstance(one, int) and one in nccl), "")
                    if table == _KERNELS
                    else ""
                )
                number = events.streams.setdefault(str(_whole(stream)), len(events.streams))
                if name:
                    own = str(len(events.nccl) + 1)
                    events.nccl.append(
                        Kernel(shown(name, 200), *span, str(_whole(stream)), _correlation(correlation), own)
                    )
                    if len(events.nccl) > _MOST:
                        raise TraceError(f"{self.path} has more than {_MOST:,} NCCL kernels: profile fewer steps")
                    continue
                events.start.append(span[0])
                events.end.append(span[1])
                events.correlation.append(_correlation(correlation))
                events.stream.append(number)
        found = {key: events for key, events in gpus.items() if events.nccl}
        if not found:
            count = sum(len(events.start) for events in gpus.values())
            raise TraceError(
                f"{self.path} has no kernel of NCCL among {count:,} kernels: was a rank of a distributed training profiled?"
            )
        return found

    def _launches(self) -> dict[int, tuple[float, int]]:
        """When and on which thread each NCCL kernel was launched."""
        wanted = {kernel.correlation for kernel in self.events.nccl}
        waits = set(self.tables.strings("value LIKE '%Synchronize%'"))
        whole_device = set(self.tables.strings("value LIKE '%DeviceSynchronize%'"))
        found: dict[int, tuple[float, int]] = {}
        columns = ("start", "end", "globalTid", "correlationId", "nameId")
        table = "CUPTI_ACTIVITY_KIND_RUNTIME"
        where = "globalTid / 16777216 = ?" if "globalTid" in self.tables.columns(table) else ""
        for start, end, thread, correlation, name in self.tables.rows(
            table, columns, where, (self._process,) if where else ()
        ):
            span = self._span(start, end, table)
            own = self.events.threads.setdefault((str(self._process), str(_whole(thread))), len(self.events.threads))
            self.events.launch.append(span[0])
            self.events.launch_correlation.append(_correlation(correlation))
            self.events.launch_thread.append(own)
            if _correlation(correlation) in wanted:
                found[_correlation(correlation)] = (span[0], own)
            if name in waits:
                self.events.waits.append(span)
            if name in whole_device:
                self.events.device_waits.append(span)
        return found

    def _span(self, start: object, end: object, table: str) -> tuple[float, float]:
        if not isinstance(start, int) or not isinstance(end, int) or not 0 <= start <= end < _LATEST_NS:
            raise TraceError(
                f"{self.path}: {table} has a row from {quoted(shown(start, 30))} to {quoted(shown(end, 30))} ns, which is no span of time"
            )
        return start / 1e3, end / 1e3

    def _named(self, pattern: Sequence[str]) -> str:
        """The condition that a range's name is like one of these."""
        like = " OR ".join(f"{{0}} LIKE '{one}'" for one in pattern)
        inside = (
            f"textId IN (SELECT id FROM StringIds WHERE {like.format('value')})"
            if self.tables.columns("StringIds")
            else "0"
        )
        return f"{_RANGES} AND ({like.format('text')} OR {inside})"

    def _read_ranges(self) -> None:
        known = schemas(self.tables)
        columns = ("start", "end", "globalTid", "text", "textId", "jsonText", "jsonTextId", "binaryData")
        for start, end, thread, text, text_id, payload, payload_id, data in self._nvtx(columns, ("nccl%",)):
            name = text if isinstance(text, str) else self._text(text_id)
            own = self.events.threads.setdefault((str(self._process), str(_whole(thread))), len(self.events.threads))
            values = known.values(payload if payload is not None else self._text(payload_id) or None, data)
            self._ranges.append(_Range(shown(name, 60), *self._span(start, end, "NVTX_EVENTS"), own, values))
            if len(self._ranges) > _MOST:
                raise TraceError(f"{self.path} has more than {_MOST:,} NVTX ranges of NCCL: profile fewer steps")
        self._ranges.sort(key=lambda one: one.start)

    def _nvtx(self, columns: Sequence[str], pattern: Sequence[str]) -> Iterable[tuple[object, ...]]:
        """The ranges of this process with such names."""
        if not {"text", "textId", "eventType", "globalTid"} <= set(self.tables.columns("NVTX_EVENTS")):
            return ()
        where = f"{self._named(pattern)} AND globalTid / 16777216 = ? AND end IS NOT NULL"
        return self.tables.rows("NVTX_EVENTS", columns, where, (self._process,))

    def _text(self, number: object) -> str:
        if not isinstance(number, int):
            return ""
        if number not in self._texts:
            self._texts |= self.tables.strings("id = ?", (number,)) or {number: ""}
        return self._texts[number]

    def _join(self, launched: dict[int, tuple[float, int]]) -> None:
        """NCCL's ranges with the kernels that carry them out."""
        communicators = {
            one.values[COMMUNICATOR]: (one.values[RANKS], one.values.get(RANK))
            for one in self._ranges
            if COMMUNICATOR in one.values and RANKS in one.values
        }
        launches: defaultdict[int, list[tuple[float, int]]] = defaultdict(list)
        for index, kernel in enumerate(self.events.nccl):
            if kernel.correlation in launched:
                moment, thread = launched[kernel.correlation]
                launches[thread].append((moment, index))
        group_ends: defaultdict[int, list[tuple[float, float]]] = defaultdict(list)
        for one in self._ranges:
            if one.function == "ncclGroupEnd":
                group_ends[one.thread].append((one.end, one.start))
        carried: defaultdict[int, list[_Range]] = defaultdict(list)
        for own in launches.values():
            own.sort()
        for thread_ends in group_ends.values():
            thread_ends.sort()
        alone = 0
        for one in self._ranges:
            if SIZE not in one.values and kind_of(one.function) is None:
                continue
            at = bisect_left(launches[one.thread], (one.start, -1))
            moment, index = launches[one.thread][at] if at < len(launches[one.thread]) else (float("inf"), -1)
            if moment <= one.end or _inside(moment, group_ends[one.thread]):
                carried[index].append(one)
            else:
                alone += 1
        if alone:
            self.said.append(f"left out: {alone} calls of NCCL that launched no kernel")
        for index, ranges in sorted(carried.items()):
            self._add(self.events.nccl[index], ranges, communicators)

    def _add(self, kernel: Kernel, ranges: Sequence[_Range], communicators: dict[int, tuple[int, int | None]]) -> None:
        logged: list[tuple[Logged, _Range]] = []
        for one in ranges:
            kind, part = kind_of(one.function), one.values.get(SIZE)
            if kind is None:
                self.events.skipped[one.function] += 1
                continue
            number = one.values.get(COMMUNICATOR)
            workers, rank = communicators.get(number if number is not None else -1, (0, None))
            workers = workers if 0 < workers < 1 << 24 else self.request.ranks or 0
            self.rank = rank if self.rank is None and rank is not None and rank >= 0 else self.rank
            name = f"{number & (1 << 64) - 1:#x}" if number is not None else f"stream {kernel.stream}"
            size = 0 if part is None else whole_bytes(kind, part, workers, str(self.path))
            if not 0 <= size <= MOST_BYTES:
                raise TraceError(
                    f"{self.path}: {one.function} has the message size {part}, which is implausible. Check the file"
                )
            peer = one.values.get(PEER)
            call = Call(kind, size, Group(name, workers), "" if peer is None else str(peer))
            logged.append((Logged(call, rank), one))
        messages = [one for one, _ in logged if one.call.kind in ("send", "recv")]
        together = all_to_all(messages, messages[0].call.group) if messages and len(messages) == len(logged) else None
        calls = [(together, logged[0][1])] if together is not None else [(one.call, its) for one, its in logged]
        for call, its in calls:
            self.events.collectives.append(
                Collective(
                    call.kind,
                    call.bytes or None,
                    call.group,
                    its.start,
                    its.end,
                    kernel.external_id,
                    peer=call.peer,
                    splits=call.splits,
                )
            )

    def windows(self) -> tuple[list[tuple[float, float]], list[str], list[str]]:
        """When the CPU was in which step, the steps' names, and what that assumes."""
        if not self.request.sizes and not any(one.bytes for one in self.events.collectives):
            kinds = Counter(str(kind_of(one.function)) for one in self._ranges if kind_of(one.function))
            what = f"{len(self.events.nccl)} NCCL kernels and {kinds.total()} NVTX ranges of NCCL's"
            raise TraceError(f"{self.path} has {what}, and the bytes of none. {_SIZES}")
        if self.request.steps is None and (named := self._named_steps()) is not None:
            return named
        return self._recurring()

    def _named_steps(self) -> tuple[list[tuple[float, float]], list[str], list[str]] | None:
        families: defaultdict[str, list[tuple[float, float, str]]] = defaultdict(list)
        for start, end, text, text_id in self._nvtx(
            ("start", "end", "text", "textId"), ("%step%", "%iter%", "%batch%")
        ):
            name = text if isinstance(text, str) else self._text(text_id)
            found = _STEP.fullmatch(name) if len(name) <= 120 else None
            if found is not None and not _ENDS_STEPS.search(name):
                families[f"{found[1]}{'#' * (found[2] is not None)}"].append(
                    (*self._span(start, end, "NVTX_EVENTS"), shown(name, 60))
                )
            if len(families) > 1000:
                return None
        apart = [sorted(own) for own in families.values()]
        apart = [own for own in apart if len(own) > 1 and all(after[0] >= before[1] for before, after in pairwise(own))]
        if not apart:
            return None
        steps = max(apart, key=lambda own: sum(end - start for start, end, _ in own))
        ends = [*(start for start, _, _ in steps[1:]), steps[-1][1]]
        windows = [(start, end) for (start, _, _), end in zip(steps, ends, strict=True)]
        return windows, [name for _, _, name in steps], [f"steps are the NVTX ranges such as {quoted(steps[0][2])}"]

    def _recurring(self) -> tuple[list[tuple[float, float]], list[str], list[str]]:
        """Each step from the launch of its first NCCL kernel to that of the next step's."""
        size = Counter[str]()
        for one in self.events.collectives:
            size[one.external_id] += one.bytes or 0
        kind = {one.external_id: one.kind for one in self.events.collectives}
        calls = {one.correlation: one for one in self.events.nccl}
        launch = {
            correlation: moment
            for correlation, moment in zip(self.events.launch_correlation, self.events.launch, strict=True)
            if correlation in calls
        }
        kernels = sorted(self.events.nccl, key=lambda one: one.start)
        bounds, said = iterations(
            [
                Call(
                    kind.get(one.external_id)
                    or kind_of(one.name.split("_")[1] if "_" in one.name else "")
                    or "all_reduce",
                    size[one.external_id],
                    Group(one.stream),
                    start_s=one.start / 1e6,
                    end_s=one.end / 1e6,
                )
                for one in kernels
            ],
            self.request.steps,
            self.path,
            timed=True,
        )
        starts = [first for first, _ in bounds] + ([bounds[-1][1]] if bounds[-1][1] < len(kernels) else [])
        called = {one.external_id: one.start for one in reversed(self.events.collectives)}
        moments = [
            called.get(kernels[first].external_id, launch.get(kernels[first].correlation, kernels[first].start))
            for first in starts
        ]
        windows = [(before, after) for before, after in pairwise(moments) if before < after]
        if not windows:
            raise TraceError(
                f"{self.path}: it holds one iteration, so how long it takes is unknown. Profile five training steps"
            )
        said.append("the file has no NVTX ranges of steps: an iteration begins when its first NCCL kernel is launched")
        return windows, [f"iteration {number}" for number in range(1, len(windows) + 1)], said

    def hardware(self) -> str:
        names = {text for (text,) in self.tables.rows("TARGET_INFO_GPU", ("name",)) if isinstance(text, str)}
        return shown(names.pop(), 80) if len(names) == 1 else ""


def _inside(moment: float, ends: Sequence[tuple[float, float]]) -> bool:
    """Whether a moment is in one of these spans, of which the ends come first."""
    at = bisect_left(ends, (moment, float("-inf")))
    return at < len(ends) and ends[at][1] <= moment


def _whole(value: object) -> int:
    return value if isinstance(value, int) else 0


def _correlation(value: object) -> int:
    return value if isinstance(value, int) and value >= 0 else -1

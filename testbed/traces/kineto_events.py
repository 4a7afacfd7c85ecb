"""The reader of a PyTorch profiler (Kineto) trace, and which call launched which kernel.

One pass over the file; only data on steps, collectives and kernels is kept.
All times here are the trace's: microseconds.
"""

from __future__ import annotations

import re
from array import array
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from testbed.core.text import quoted, shown
from testbed.traces.collectives import uneven
from testbed.traces.json_stream import brief, head, items, number
from testbed.traces.process_groups import Group
from testbed.traces.pytorch import (
    ANNOTATION,
    COMMUNICATION,
    WITHOUT_DATA,
    gathered_bytes,
    kind_of,
    ranks_in,
    shapes_bytes,
    tensor_bytes,
)
from testbed.traces.trace import Kind, TraceError

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

NO_ID = ""  # an event without an External id
NO_CORRELATION = -1

_SIZES = ("In msg nelems", "Out msg nelems", "dtype")
COLLECTIVE = "collective"  # category of exchanges in what `mltcp export --perfetto` writes
_WORK_OF_GPUS = ("kernel", "gpu_memcpy", "gpu_memset", COLLECTIVE)
_RUNTIME = ("cuda_runtime", "cuda_driver", "runtime", "privateuse1_runtime")
# What saves a model's state, as opposed to activation checkpointing, which every step does
_SAVES = re.compile(
    r"(?i)torch\.save|serialization\.py|(?<!activation_)(?:save|write)_?(?:model_|state_)?(?:checkpoint|state)|^checkpoint$"
)
_MOST = 500_000  # collectives and steps of a file
_MOST_SAVES = 1000  # events of a written model state


@dataclass(frozen=True, slots=True)
class Kernel:
    """An NCCL kernel."""

    name: str
    start: float
    end: float
    stream: str
    correlation: int
    external_id: str
    told: Collective | None = None  # the kernel's own data on its collective


@dataclass(frozen=True, slots=True)
class Call:
    """The CPU's call around a launch: an annotation (``nccl:all_to_all``) or a nameless ``record_param_comms``."""

    name: str
    start: float
    end: float
    thread: int
    external_id: str
    bytes: int | None  # of this rank's input

    @property
    def kind(self) -> Kind | None:
        return kind_of(ANNOTATION.sub("", self.name))


@dataclass(frozen=True, slots=True)
class Collective:
    """One collective of this rank; `testbed.traces.kineto_collectives` finds the values that the event lacks."""

    kind: Kind
    bytes: int | None  # of the whole tensor; None if not recorded
    group: Group
    start: float  # of the CPU's call, or of the kernel's launch
    end: float
    external_id: str = ""
    kernel: Kernel | None = None
    step: int = -1  # counted from 0; -1: in none yet
    peer: str = ""  # of a message: the other rank, or "" if it is not recorded
    splits: tuple[int, ...] = ()  # bytes for each rank of the group; empty: equal parts, or not recorded


@dataclass(frozen=True, slots=True)
class StreamWait:
    """A stream waits for what another one had to do when an event was recorded (``cudaStreamWaitEvent``)."""

    time: float
    correlation: int  # of the call
    stream: str
    awaited: str  # the other stream
    record: int  # correlation of the cudaEventRecord


@dataclass
class Unused:
    """Why collectives cannot be replayed, or not without further input."""

    lacking: Counter[str] = field(default_factory=Counter)  # fields that collectives do not have
    skipped: Counter[str] = field(default_factory=Counter)  # collectives of kinds there is no replay for
    empty: Counter[str] = field(default_factory=Counter)  # collectives of no bytes
    received: Counter[str] = field(default_factory=Counter)  # all-to-alls in which this rank sends nothing


@dataclass
class Events(Unused):
    """The used parts of a trace; numbers by the hundred thousand are held as arrays."""

    profiler_steps: list[tuple[str, float, float]] = field(default_factory=list)
    optimizer_steps: list[tuple[str, float, float]] = field(default_factory=list)
    collectives: list[Collective] = field(default_factory=list)
    on_kernels: Unused = field(default_factory=Unused)  # the same, from kernels' own data
    calls: list[Call] = field(default_factory=list)  # record_param_comms without a name
    annotations: list[Call] = field(default_factory=list)
    threads: dict[tuple[str, str], int] = field(default_factory=dict)  # by process and thread
    nccl: list[Kernel] = field(default_factory=list)
    start: array[float] = field(default_factory=lambda: array("d"))  # of computing kernels
    end: array[float] = field(default_factory=lambda: array("d"))
    correlation: array[int] = field(default_factory=lambda: array("q"))
    stream: array[int] = field(default_factory=lambda: array("q"))  # of computing kernels, by its place among `streams`
    streams: dict[str, int] = field(default_factory=dict)  # all that were seen
    launch: array[float] = field(default_factory=lambda: array("d"))  # calls of the CUDA runtime
    launch_correlation: array[int] = field(default_factory=lambda: array("q"))
    launch_thread: array[int] = field(default_factory=lambda: array("q"))
    waits: list[tuple[float, float]] = field(default_factory=list)  # in which the CPU waits for the GPU
    device_waits: list[tuple[float, float]] = field(default_factory=list)  # those for all of its streams
    stream_waits: list[StreamWait] = field(default_factory=list)
    gpu_steps: list[tuple[str, float, float]] = field(default_factory=list)  # ProfilerSteps by the GPU's clock
    saves: list[tuple[float, str]] = field(default_factory=list)  # when the model's state was written, and by what

    @property
    def communication(self) -> int:
        """How many objects are held."""
        steps = len(self.profiler_steps) + len(self.optimizer_steps) + len(self.gpu_steps)
        return len(self.nccl) + len(self.collectives) + len(self.calls) + len(self.annotations) + steps


def read_events(path: Path) -> Events:
    """All of the file, read once; raises `TraceError`."""
    events = Events()
    nothing = True
    for event in items(path, "traceEvents"):
        nothing = False
        if event.get("ph") == "X":
            add(events, event, path)
    if nothing:
        raise TraceError(f"{path} has no 'traceEvents', or an empty one. Give a trace of the PyTorch profiler")
    return events


def add(events: Events, event: dict[str, Any], path: Path) -> None:
    """An event with a duration; raises `TraceError`."""
    name, args = named(event, path)
    category = str(event.get("cat", "")).lower()
    if category in _WORK_OF_GPUS:
        _add_kernel(events, name, args, span_of(event, path), path, category == COLLECTIVE)
    elif category in _RUNTIME:
        start, end = span_of(event, path)
        events.launch.append(start)
        events.launch_correlation.append(_correlation(args))
        events.launch_thread.append(thread_of(events, event))
        if "Synchronize" in name:
            events.waits.append((start, end))
        if "DeviceSynchronize" in name:
            events.device_waits.append((start, end))
    elif category == "cuda_sync":
        _add_stream_wait(events, args, span_of(event, path))
    elif name == "record_param_comms":
        _add_collective(events, args, span_of(event, path), thread_of(events, event), path)
    elif ANNOTATION.match(name) and category != "gpu_user_annotation":
        events.annotations.append(_call(name, args, span_of(event, path), thread_of(events, event)))
    elif name.startswith("ProfilerStep#"):
        steps = events.gpu_steps if category == "gpu_user_annotation" else events.profiler_steps
        steps.append((shown(name), *span_of(event, path)))
    elif name.startswith("Optimizer.step#") and category != "gpu_user_annotation":
        events.optimizer_steps.append((name, *span_of(event, path)))
    elif len(events.saves) < _MOST_SAVES and _SAVES.search(name):
        events.saves.append((span_of(event, path)[0], shown(name)))
    check_room(events, path)


def check_room(events: Events, path: Path) -> None:
    """Raises `TraceError` if more is held than a profile of a few steps has."""
    if events.communication > _MOST:
        raise TraceError(f"{path} has more than {_MOST:,} collectives and steps: profile fewer steps (three do)")


def named(event: dict[str, Any], path: Path) -> tuple[str, dict[str, Any]]:
    """Name and arguments of an event; raises `TraceError`."""
    name, args = event.get("name"), event.get("args", {})
    if not isinstance(name, str):
        raise TraceError(f"{path}: an event's 'name' is {brief(name)}, which is not text")
    if not isinstance(args, dict):
        raise TraceError(f"{path}: 'args' of the event {quoted(name)} is {brief(args)}, which is not an object")
    return name, args


def span_of(event: dict[str, Any], path: Path) -> tuple[float, float]:
    where = f"{path}: the event {quoted(event['name'])} at ts {brief(event.get('ts'))}"
    start = number(event, "ts", where)
    return start, start + number(event, "dur", where)


def _correlation(args: dict[str, Any]) -> int:
    return _correlated(args.get("correlation"))


def _correlated(value: object) -> int:
    """A number of at most 64 bits as a signed one; -1: none."""
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < (1 << 64) - 1:
        return NO_CORRELATION
    return value if value < 1 << 63 else value - (1 << 64)


def _external_id(args: dict[str, Any]) -> str:
    """Which call an event belongs to; older versions write 0 for none."""
    given = args.get("External id", args.get("external id"))
    return str(given) if given else NO_ID


def thread_of(events: Events, event: dict[str, Any]) -> int:
    return events.threads.setdefault((str(event.get("pid")), str(event.get("tid"))), len(events.threads))


def _call(name: str, args: dict[str, Any], span: tuple[float, float], thread: int) -> Call:
    size = shapes_bytes(args.get("Input Dims"), args.get("Input type"))
    return Call(shown(name), *span, thread, _external_id(args), size)


def _add_kernel(
    events: Events, name: str, args: dict[str, Any], span: tuple[float, float], path: Path, exchanges: bool
) -> None:
    stream = str(args.get("stream"))
    number = events.streams.setdefault(stream, len(events.streams))
    if exchanges or COMMUNICATION.search(name):
        told = (
            _described(events.on_kernels, args, span, f"{path}: the kernel {quoted(name)} at ts {span[0]:.0f}")
            if "Collective name" in args
            else None
        )
        events.nccl.append(Kernel(shown(name), *span, stream, _correlation(args), _external_id(args), told))
        return
    events.start.append(span[0])
    events.end.append(span[1])
    events.correlation.append(_correlation(args))
    events.stream.append(number)


def _add_stream_wait(events: Events, args: dict[str, Any], span: tuple[float, float]) -> None:
    record = _correlated(args.get("wait_on_cuda_event_record_corr_id"))
    if "wait_on_stream" in args and record != NO_CORRELATION:
        stream, awaited = str(args.get("stream")), str(args["wait_on_stream"])
        events.stream_waits.append(StreamWait(span[0], _correlation(args), stream, awaited, record))


def _add_collective(events: Events, args: dict[str, Any], span: tuple[float, float], thread: int, path: Path) -> None:
    if args.get("Collective name") is None:
        events.lacking["Collective name"] += 1
        events.calls.append(_call("record_param_comms", args, span, thread))
        return
    found = _described(events, args, span, f"{path}: the record_param_comms at ts {span[0]:.0f}")
    if found is not None:
        events.collectives.append(found)


def _described(unused: Unused, args: dict[str, Any], span: tuple[float, float], where: str) -> Collective | None:
    """The collective that these ``args`` describe; None if it carries nothing, or cannot be replayed."""
    name = args["Collective name"]
    if not isinstance(name, str):
        raise TraceError(f"{where}: 'Collective name' is {brief(name)}, which is not text")
    if name in WITHOUT_DATA:
        return None
    missing = [key for key in _SIZES if key not in args]
    kind = kind_of(name)
    if kind is None:
        unused.skipped[shown(name)] += 1
        return None
    unused.lacking.update(missing)
    workers = int(number(args, "Group size", where)) if "Group size" in args else 0
    if missing:
        size = gathered_bytes(kind, shapes_bytes(args.get("Input Dims"), args.get("Input type")), workers)
    else:
        elements_in, elements_out = (number(args, key, where) for key in _SIZES[:2])
        size = tensor_bytes(kind, elements_in, elements_out, args["dtype"], where)
    if size == 0:  # nothing travels
        unused.empty[shown(name)] += 1
        return None
    group = Group(
        shown(args.get("Process Group Name", "")), workers, shown(args.get("Process Group Description", "")),
        ranks_in(args.get("Process Group Ranks")),
    )  # fmt: skip
    peer = args.get({"send": "Dst Rank", "recv": "Src Rank"}.get(kind, ""))
    if kind == "all_to_all" and not missing and not args["In msg nelems"]:
        unused.received[shown(name)] += 1
    return Collective(
        kind, size, group, *span, _external_id(args), peer="" if peer is None else shown(peer, 20),
        splits=_splits(kind, args.get("In split size"), size, workers),
    )  # fmt: skip


_SPLITS = re.compile(r"\[\d{1,15}(?:, ?\d{1,15})*\]")


def _splits(kind: Kind, given: object, size: int | None, workers: int) -> tuple[int, ...]:
    """The bytes that an all-to-all sends to each rank; empty if they are the same for all."""
    if kind != "all_to_all" or not size or not isinstance(given, str) or not _SPLITS.fullmatch(given):
        return ()
    parts = [int(one) for one in given[1:-1].split(",")]
    if len(parts) != workers or not uneven(parts):
        return ()
    shares = [size * one // sum(parts) for one in parts]
    return (*shares[:-1], size - sum(shares[:-1]))


def launches(events: Events) -> tuple[Floats, Floats]:
    """When the CPU launched each computing kernel, and its start; see `_launched`."""
    start = floats(events.start)
    return _launched(events, ints(events.correlation), start), start


def nccl_launches(events: Events) -> Floats:
    """When the CPU launched each NCCL kernel; see `_launched`."""
    return _launched(events, _of_nccl(events), np.array([kernel.start for kernel in events.nccl], dtype=np.float64))


def nccl_threads(events: Events) -> list[int]:
    """The thread that launched each NCCL kernel; -1 if that is not recorded."""
    known = np.append(ints(events.launch_thread), -1)
    threads: list[int] = known[_launch_of(events, _of_nccl(events))].tolist()
    return threads


def call_times(events: Events, correlations: Sequence[int]) -> Floats:
    """When the calls of the CUDA runtime with these correlations began; not a number where none is recorded."""
    at = _launch_of(events, np.array(correlations, dtype=np.int64))
    return np.where(at >= 0, np.append(floats(events.launch), 0.0)[at], np.nan)


def _of_nccl(events: Events) -> Ints:
    return np.array([kernel.correlation for kernel in events.nccl], dtype=np.int64)


def _launched(events: Events, correlation: Ints, start: Floats) -> Floats:
    """When kernels were launched. Where most launches are recorded, the others took place before the profile began: -inf.

    Otherwise a kernel counts as launched when it starts.
    """
    launch = _launch_of(events, correlation)
    return np.where(
        launch >= 0, np.append(floats(events.launch), 0.0)[launch], -np.inf if launches_are_recorded(events) else start
    )


def launches_are_recorded(events: Events) -> bool:
    """Whether the calls that launched most of the kernels are in the file."""
    found = np.concatenate([_launch_of(events, ints(events.correlation)), _launch_of(events, _of_nccl(events))])
    return 2 * int(np.count_nonzero(found >= 0)) > len(found)


def _launch_of(events: Events, correlation: Ints) -> Ints:
    """Which call of the CUDA runtime launched the kernels of these correlations; -1 where none is recorded."""
    known = ints(events.launch_correlation)
    if not len(known):
        return np.full(len(correlation), -1)
    order = np.argsort(known, kind="stable")
    at = np.minimum(np.searchsorted(known[order], correlation), len(known) - 1)
    found = (known[order][at] == correlation) & (correlation != NO_CORRELATION)
    return np.where(found, order[at], -1)


def ints(values: array[int]) -> Ints:
    return np.frombuffer(values, np.int64)


def floats(values: array[float]) -> Floats:
    return np.frombuffer(values, np.float64)


def before_events(path: Path) -> bytes:
    """The file up to its events, with the profiler's name and the device."""
    start = head(path)
    if start.lstrip()[:1] == b"[":
        return b""
    first = re.search(rb'"traceEvents"', start)
    return start[: first.start()] if first else start


def ranks_of(path: Path) -> int:
    """The number of ranks in the only process group (or of several of one size); 0 if unknown."""
    sizes = {int(size) for size in re.findall(rb'"pg_size":\s*(\d{1,9})', before_events(path))}
    return sizes.pop() if len(sizes) == 1 else 0

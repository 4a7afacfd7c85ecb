"""What is read of a PyTorch profiler (Kineto) trace, and which call launched which kernel.

One pass over the file; only what tells about steps, collectives and kernels is kept.
All times here are the trace's: microseconds.
"""

from __future__ import annotations

import re
from array import array
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from testbed.core.text import quoted, shown
from testbed.traces.json_stream import brief, head, items, number
from testbed.traces.pytorch import (
    ANNOTATION,
    WITHOUT_DATA,
    Group,
    gathered_bytes,
    kind_of,
    shapes_bytes,
    tensor_bytes,
)
from testbed.traces.trace import Kind, TraceError

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

NO_ID = ""  # an event without an External id

_SIZES = ("In msg nelems", "Out msg nelems", "dtype")
_MOST = 500_000  # collectives and steps of a file


@dataclass(frozen=True, slots=True)
class Kernel:
    """An NCCL kernel."""

    name: str
    start: float
    end: float
    stream: object
    correlation: int
    external_id: str


@dataclass(frozen=True, slots=True)
class Call:
    """What the CPU did around a launch: an annotation (``nccl:all_to_all``) or a nameless ``record_param_comms``."""

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
    """One collective of this rank; what the event itself does not tell is found in `_kineto_collectives`."""

    kind: Kind
    bytes: int | None  # of the whole tensor; None if not recorded
    group: Group
    start: float  # of the CPU's call, or of the kernel's launch
    end: float
    external_id: str = ""
    kernel: Kernel | None = None
    step: int = -1  # counted from 0; -1: in none yet


@dataclass
class Events:
    """What matters of a trace; numbers by the hundred thousand are held as arrays."""

    profiler_steps: list[tuple[str, float, float]] = field(default_factory=list)
    optimizer_steps: list[tuple[str, float, float]] = field(default_factory=list)
    collectives: list[Collective] = field(default_factory=list)
    lacking: Counter[str] = field(default_factory=Counter)  # fields that collectives do not have
    skipped: Counter[str] = field(default_factory=Counter)  # collectives of kinds there is no replay for
    empty: Counter[str] = field(default_factory=Counter)  # collectives of no bytes
    calls: list[Call] = field(default_factory=list)  # record_param_comms without a name
    annotations: list[Call] = field(default_factory=list)
    threads: dict[tuple[str, str], int] = field(default_factory=dict)  # by process and thread
    nccl: list[Kernel] = field(default_factory=list)
    start: array[float] = field(default_factory=lambda: array("d"))  # of computing kernels
    end: array[float] = field(default_factory=lambda: array("d"))
    correlation: array[int] = field(default_factory=lambda: array("q"))
    streams: set[object] = field(default_factory=set)  # that compute
    launch: array[float] = field(default_factory=lambda: array("d"))  # calls of the CUDA runtime
    launch_correlation: array[int] = field(default_factory=lambda: array("q"))
    launch_thread: array[int] = field(default_factory=lambda: array("q"))
    waits: list[tuple[float, float]] = field(default_factory=list)  # in which the CPU waits for the GPU

    @property
    def communication(self) -> int:
        """How many objects are held."""
        steps = len(self.profiler_steps) + len(self.optimizer_steps)
        return len(self.nccl) + len(self.collectives) + len(self.calls) + len(self.annotations) + steps


def read_events(path: Path) -> Events:
    """All of the file, read once; raises `TraceError`."""
    events = Events()
    nothing = True
    for event in items(path, "traceEvents"):
        nothing = False
        if event.get("ph") != "X":
            continue
        name, category = event.get("name"), str(event.get("cat", "")).lower()
        if not isinstance(name, str):
            raise TraceError(f"{path}: an event's 'name' is {brief(name)}, which is not text")
        args = event.get("args", {})
        if not isinstance(args, dict):
            raise TraceError(f"{path}: 'args' of the event {quoted(name)} is {brief(args)}, which is not an object")
        if category == "kernel":
            _add_kernel(events, name, args, _span(event, path))
        elif category in ("cuda_runtime", "cuda_driver", "runtime"):
            start, end = _span(event, path)
            events.launch.append(start)
            events.launch_correlation.append(_correlation(args))
            events.launch_thread.append(_thread(events, event))
            if "Synchronize" in name:
                events.waits.append((start, end))
        elif name == "record_param_comms":
            _add_collective(events, args, _span(event, path), _thread(events, event), path)
        elif ANNOTATION.match(name) and category != "gpu_user_annotation":
            events.annotations.append(_call(name, args, _span(event, path), _thread(events, event)))
        elif name.startswith("ProfilerStep#") and category != "gpu_user_annotation":
            events.profiler_steps.append((name, *_span(event, path)))
        elif name.startswith("Optimizer.step#") and category != "gpu_user_annotation":
            events.optimizer_steps.append((name, *_span(event, path)))
        if events.communication > _MOST:
            raise TraceError(f"{path} has more than {_MOST:,} collectives and steps: profile fewer steps (three do)")
    if nothing:
        raise TraceError(f"{path} has no 'traceEvents', or none in it: is it a trace of the PyTorch profiler?")
    return events


def _span(event: dict[str, Any], path: Path) -> tuple[float, float]:
    where = f"{path}: the event {quoted(event['name'])} at ts {brief(event.get('ts'))}"
    start = number(event, "ts", where)
    return start, start + number(event, "dur", where)


def _correlation(args: dict[str, Any]) -> int:
    value = args.get("correlation")
    return value if isinstance(value, int) and 0 <= value < 1 << 63 else -1


def _external_id(args: dict[str, Any]) -> str:
    """Which call an event belongs to; older versions write 0 for none."""
    given = args.get("External id", args.get("external id"))
    return str(given) if given else NO_ID


def _thread(events: Events, event: dict[str, Any]) -> int:
    return events.threads.setdefault((str(event.get("pid")), str(event.get("tid"))), len(events.threads))


def _call(name: str, args: dict[str, Any], span: tuple[float, float], thread: int) -> Call:
    size = shapes_bytes(args.get("Input Dims"), args.get("Input type"))
    return Call(shown(name), *span, thread, _external_id(args), size)


def _add_kernel(events: Events, name: str, args: dict[str, Any], span: tuple[float, float]) -> None:
    stream = str(args.get("stream"))
    if "nccl" in name.lower():
        events.nccl.append(Kernel(shown(name), *span, stream, _correlation(args), _external_id(args)))
        return
    events.start.append(span[0])
    events.end.append(span[1])
    events.correlation.append(_correlation(args))
    events.streams.add(stream)


def _add_collective(events: Events, args: dict[str, Any], span: tuple[float, float], thread: int, path: Path) -> None:
    name = args.get("Collective name")
    where = f"{path}: the record_param_comms at ts {span[0]:.0f}"
    if name is None:
        events.lacking["Collective name"] += 1
        events.calls.append(_call("record_param_comms", args, span, thread))
        return
    if not isinstance(name, str):
        raise TraceError(f"{where}: 'Collective name' is {brief(name)}, which is not text")
    if name in WITHOUT_DATA:
        return
    missing = [key for key in _SIZES if key not in args]
    events.lacking.update(missing)
    kind = kind_of(name)
    if kind is None:
        events.skipped[shown(name)] += 1
        return
    workers = int(number(args, "Group size", where)) if "Group size" in args else 0
    if missing:
        size = gathered_bytes(kind, shapes_bytes(args.get("Input Dims"), args.get("Input type")), workers)
    else:
        elements_in, elements_out = (number(args, key, where) for key in _SIZES[:2])
        size = tensor_bytes(kind, elements_in, elements_out, args["dtype"], where)
    if size == 0:  # nothing travels
        events.empty[shown(name)] += 1
        return
    group = Group(str(args.get("Process Group Name", "")), workers)
    events.collectives.append(Collective(kind, size, group, *span, _external_id(args)))


def launches(events: Events) -> tuple[Floats, Floats]:
    """When the CPU launched each computing kernel (its own start if that is not recorded), and its start."""
    start = floats(events.start)
    return _launched(events, np.frombuffer(events.correlation, np.int64), start), start


def nccl_launches(events: Events) -> Floats:
    """When the CPU launched each NCCL kernel (its own start if that is not recorded)."""
    correlation = np.array([kernel.correlation for kernel in events.nccl], dtype=np.int64)
    return _launched(events, correlation, np.array([kernel.start for kernel in events.nccl], dtype=np.float64))


def nccl_threads(events: Events) -> list[int]:
    """The thread that launched each NCCL kernel; -1 if that is not recorded."""
    correlation = np.array([kernel.correlation for kernel in events.nccl], dtype=np.int64)
    launch = _launch_of(events, correlation)
    known = np.append(np.frombuffer(events.launch_thread, np.int64), -1)
    threads: list[int] = known[launch].tolist()
    return threads


def _launched(events: Events, correlation: Ints, otherwise: Floats) -> Floats:
    launch = _launch_of(events, correlation)
    return np.where(launch >= 0, np.append(floats(events.launch), 0.0)[launch], otherwise)


def _launch_of(events: Events, correlation: Ints) -> Ints:
    """Which call of the CUDA runtime launched the kernels of these correlations; -1 where none is recorded."""
    known = np.frombuffer(events.launch_correlation, np.int64)
    if not len(known):
        return np.full(len(correlation), -1)
    order = np.argsort(known, kind="stable")
    at = np.minimum(np.searchsorted(known[order], correlation), len(known) - 1)
    found = (known[order][at] == correlation) & (correlation >= 0)
    return np.where(found, order[at], -1)


def floats(values: array[float]) -> Floats:
    return np.frombuffer(values, np.float64)


def before_events(path: Path) -> bytes:
    """The file up to its events, which tells who measured and on what."""
    start = head(path)
    first = re.search(rb'"traceEvents"', start)
    return start[: first.start()] if first else start


def ranks_of(path: Path) -> int:
    """How many ranks are in the only process group (or of several of one size); 0 if that is not told."""
    sizes = {int(size) for size in re.findall(rb'"pg_size":\s*(\d{1,9})', before_events(path))}
    return sizes.pop() if len(sizes) == 1 else 0

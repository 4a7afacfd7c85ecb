"""PyTorch profiler (Kineto) traces: Chrome's trace-event JSON, also gzipped.

Collectives are ``record_param_comms`` events; when they ran is told by the NCCL kernel
with the same ``External id`` (or launched during them), when there is one. A step lasts
from when the CPU has begun it and the GPU has finished the one before until both have
finished it: so it is right for training that the GPU limits, where kernels trail behind
the ``ProfilerStep`` that launched them, as well as for training that the CPU limits.
"""

from __future__ import annotations

import re
from array import array
from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from workloads.importers import Profile, Request
from workloads.importers._pytorch import NO_GROUP, WITHOUT_DATA, Group, choose, give_sizes, kind_of, tensor_bytes
from workloads.importers._stream import brief, head, items, number
from workloads.steps import Exchange, Step
from workloads.trace import Kind, TraceError

TITLE = "PyTorch profiler (Kineto) trace, JSON"
USES = frozenset({"group", "sizes"})

Floats = npt.NDArray[np.float64]

_SIZES = ("In msg nelems", "Out msg nelems", "dtype")
_BESIDE = 0.01  # part of a collective beside which something must compute for it to count as overlapped


def recognises(head: bytes, path: Path) -> bool:
    return head.lstrip()[:1] == b"{" and (b'"traceEvents"' in head or b'"deviceProperties"' in head)


def read(path: Path, request: Request) -> Profile:
    events = _read_events(path)
    windows, said = _windows(events, path)
    collectives, about_sizes = _collectives(events, windows, request, path)
    said += about_sizes
    if without := sum(1 for one in collectives if one.kernel is None):
        said.append(
            f"{without} of {len(collectives)} collectives have no NCCL kernel: their times are those of the CPU's call"
        )
    computing = _Computing(events)
    steps = [
        _step(own, *bounds, computing)
        for own, bounds in zip(_by_step(collectives, len(windows)), _steps(events, windows), strict=True)
    ]
    return Profile(steps, **_provenance(path), assumptions=tuple(said))


@dataclass(frozen=True, slots=True)
class _Kernel:
    """An NCCL kernel; times in microseconds, as everywhere in this module up to `_step`."""

    kind: Kind | None
    start: float
    end: float
    stream: object
    correlation: int
    external_id: object


@dataclass(frozen=True, slots=True)
class _Collective:
    kind: Kind
    bytes: int | None
    group: Group
    start: float  # the CPU's call
    end: float
    external_id: object = None
    kernel: _Kernel | None = None
    step: int = -1


@dataclass
class _Events:
    """What matters of a trace; numbers by the hundred thousand are held as arrays."""

    profiler_steps: list[tuple[str, float, float]] = field(default_factory=list)
    optimizer_steps: list[tuple[str, float, float]] = field(default_factory=list)
    collectives: list[_Collective] = field(default_factory=list)
    lacking: Counter[str] = field(default_factory=Counter)  # fields that collectives do not have
    skipped: Counter[str] = field(default_factory=Counter)  # collectives of kinds there is no replay for
    nccl: list[_Kernel] = field(default_factory=list)
    start: array[float] = field(default_factory=lambda: array("d"))  # of computing kernels
    end: array[float] = field(default_factory=lambda: array("d"))
    correlation: array[int] = field(default_factory=lambda: array("q"))
    streams: set[object] = field(default_factory=set)  # that compute
    launch: array[float] = field(default_factory=lambda: array("d"))  # calls of the CUDA runtime
    launch_correlation: array[int] = field(default_factory=lambda: array("q"))
    waits: list[tuple[float, float]] = field(default_factory=list)  # in which the CPU waits for the GPU


def _read_events(path: Path) -> _Events:
    events = _Events()
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
            raise TraceError(f"{path}: 'args' of the event {name[:60]!r} is {brief(args)}, which is not an object")
        if category == "kernel":
            _add_kernel(events, name, args, _span(event, path))
        elif category in ("cuda_runtime", "cuda_driver", "runtime"):
            start, end = _span(event, path)
            events.launch.append(start)
            events.launch_correlation.append(_correlation(args))
            if "Synchronize" in name:
                events.waits.append((start, end))
        elif name == "record_param_comms":
            _add_collective(events, args, _span(event, path), path)
        elif name.startswith("ProfilerStep#") and category != "gpu_user_annotation":
            events.profiler_steps.append((name, *_span(event, path)))
        elif name.startswith("Optimizer.step#") and category != "gpu_user_annotation":
            events.optimizer_steps.append((name, *_span(event, path)))
    if nothing:
        raise TraceError(f"{path} has no 'traceEvents', or none in it: is it a trace of the PyTorch profiler?")
    return events


def _span(event: dict[str, Any], path: Path) -> tuple[float, float]:
    where = f"{path}: the event {str(event['name'])[:60]!r} at ts {brief(event.get('ts'))}"
    start = number(event, "ts", where)
    return start, start + number(event, "dur", where)


def _correlation(args: dict[str, Any]) -> int:
    value = args.get("correlation")
    return value if isinstance(value, int) and 0 <= value < 1 << 63 else -1


def _add_kernel(events: _Events, name: str, args: dict[str, Any], span: tuple[float, float]) -> None:
    stream = str(args.get("stream"))
    if "nccl" in name.lower():
        external_id = args.get("External id", args.get("external id"))
        kernel = _Kernel(kind_of(name), *span, stream, _correlation(args), str(external_id))
        events.nccl.append(kernel)
        return
    events.start.append(span[0])
    events.end.append(span[1])
    events.correlation.append(_correlation(args))
    events.streams.add(stream)


def _add_collective(events: _Events, args: dict[str, Any], span: tuple[float, float], path: Path) -> None:
    name = args.get("Collective name")
    where = f"{path}: the record_param_comms at ts {span[0]:.0f}"
    if name is None:
        events.lacking["Collective name"] += 1
        return
    if not isinstance(name, str):
        raise TraceError(f"{where}: 'Collective name' is {brief(name)}, which is not text")
    if name in WITHOUT_DATA:
        return
    missing = [key for key in _SIZES if key not in args]
    events.lacking.update(missing)
    kind = kind_of(name)
    if kind is None:
        events.skipped[name[:40]] += 1
        return
    workers = int(number(args, "Group size", where)) if "Group size" in args else 0
    size = None
    if not missing:
        elements_in, elements_out = (number(args, key, where) for key in _SIZES[:2])
        size = tensor_bytes(kind, elements_in, elements_out, args["dtype"], where)
    if size == 0 or workers == 1:  # nothing travels
        return
    group = Group(str(args.get("Process Group Name", "")), workers)
    external_id = args.get("External id", args.get("external id"))
    events.collectives.append(_Collective(kind, size, group, *span, str(external_id)))


def _windows(events: _Events, path: Path) -> tuple[list[tuple[float, float]], list[str]]:
    """When the CPU was in which step."""
    if steps := events.profiler_steps:
        steps.sort(key=lambda step: step[1])
        twice = [name for name, count in Counter(name for name, _, _ in steps).items() if count > 1]
        if twice:
            raise TraceError(f"{path} has {twice[0]} more than once: give one file per rank, not a merged one")
        return [(start, end) for _, start, end in steps], []
    ends = defaultdict(list)
    for name, _, end in events.optimizer_steps:
        ends[name].append(end)
    if len(ends) == 1 and len(own := sorted(next(iter(ends.values())))) > 1:
        return list(pairwise(own)), [
            f"steps are taken to end with each {next(iter(ends))}: the trace has no ProfilerStep annotations"
        ]
    found = ", ".join(f"{len(own)} × {name}" for name, own in sorted(ends.items())) or "no Optimizer.step either"
    raise TraceError(
        f"{path} has no 'ProfilerStep#N' annotations, so where a step begins is unknown ({found}; one kind of "
        f"Optimizer.step, at least twice, would do). Profile with torch.profiler's schedule=… and call "
        f"prof.step() after each training step."
    )


def _steps(events: _Events, windows: list[tuple[float, float]]) -> list[tuple[float, float]]:
    """Begin and end of each step, GPU included."""
    starts, ends = (np.array(column) for column in zip(*windows, strict=True))
    launched, _ = _launches(events)
    launched = np.concatenate([launched, _nccl_launches(events)])
    kernel_ends = np.concatenate([_floats(events.end), np.array([kernel.end for kernel in events.nccl])])
    step = np.searchsorted(starts, launched, side="right")  # 0: before the first step
    drained = np.full(len(windows) + 1, -np.inf)
    inside = (step == 0) | (launched <= ends[np.maximum(step - 1, 0)])
    np.maximum.at(drained, step[inside], kernel_ends[inside])
    drained = np.maximum.accumulate(drained)
    begin, end = np.maximum(starts, drained[:-1]), np.maximum(ends, drained[1:])
    return list(zip(begin.tolist(), end.tolist(), strict=True))


def _launches(events: _Events) -> tuple[Floats, Floats]:
    """When the CPU launched each computing kernel (its own start if that is not recorded), and its start."""
    start = _floats(events.start)
    return _launched(events, np.frombuffer(events.correlation, np.int64), start), start


def _nccl_launches(events: _Events) -> Floats:
    correlation = np.array([kernel.correlation for kernel in events.nccl], dtype=np.int64)
    return _launched(events, correlation, np.array([kernel.start for kernel in events.nccl], dtype=np.float64))


def _launched(events: _Events, correlation: npt.NDArray[np.int64], otherwise: Floats) -> Floats:
    known = np.frombuffer(events.launch_correlation, np.int64)
    order = np.argsort(known, kind="stable")
    if not len(known):
        return otherwise
    at = np.minimum(np.searchsorted(known[order], correlation), len(known) - 1)
    found = (known[order][at] == correlation) & (correlation >= 0)
    return np.where(found, _floats(events.launch)[order][at], otherwise)


def _floats(values: array[float]) -> Floats:
    return np.frombuffer(values, np.float64)


def _collectives(
    events: _Events, windows: list[tuple[float, float]], request: Request, path: Path
) -> tuple[list[_Collective], list[str]]:
    """The collectives of the chosen process group, each in a step and with its size and kernel."""
    said = [f"{count} {name} cannot be replayed and were left out" for name, count in sorted(events.skipped.items())]
    recorded = _with_kernels(events)
    if not recorded:  # PyTorch did not yet say what it exchanges: NCCL's kernels do
        launches = _nccl_launches(events).tolist()
        recorded = [
            _Collective(kernel.kind, None, NO_GROUP, launch, launch, kernel=kernel)
            for kernel, launch in zip(events.nccl, launches, strict=True)
            if kernel.kind is not None
        ]
    starts = [start for start, _ in windows]
    placed = []
    for one in recorded:
        step = bisect_right(starts, one.start) - 1
        if step >= 0 and one.start <= windows[step][1]:
            placed.append(replace(one, step=step))
    if not placed:
        outside = f"{len(recorded)} outside of" if recorded else "none at all, in or outside of"
        raise TraceError(
            f"{path} has no collective within its {len(windows)} steps ({outside} them): neither record_param_comms "
            f"events with a 'Collective name' nor NCCL kernels. Was one worker alone profiled, or CUDA left out?"
        )
    chosen, others = choose(placed, request.group, path)
    chosen.sort(key=lambda one: one.kernel.start if one.kernel else one.start)
    if all(one.bytes is not None for one in chosen):
        if request.sizes:
            raise TraceError(f"{path}: --bytes is for traces without sizes, and this one has them")
        return chosen, said + others
    by_step = _by_step(chosen, len(windows))
    missing = "its record_param_comms events have no " + ", ".join(map(repr, sorted(events.lacking)))
    if not events.lacking:
        missing = "it has no record_param_comms events"
    sizes, assumed = give_sizes([len(own) for own in by_step], request, path, missing)
    sized = [
        replace(one, bytes=size)
        for own, given in zip(by_step, sizes, strict=True)
        for one, size in zip(own, given, strict=False)
    ]
    return sized, said + others + assumed


def _by_step(collectives: list[_Collective], steps: int) -> list[list[_Collective]]:
    by_step: list[list[_Collective]] = [[] for _ in range(steps)]
    for one in collectives:
        by_step[one.step].append(one)
    return by_step


def _with_kernels(events: _Events) -> list[_Collective]:
    """The recorded collectives, each with its NCCL kernel where one is found."""
    by_id: dict[object, _Kernel] = {}
    for kernel in events.nccl:
        other = by_id.get(kernel.external_id, kernel)  # several devices: from the first's start to the last's end
        by_id[kernel.external_id] = replace(
            kernel, start=min(kernel.start, other.start), end=max(kernel.end, other.end)
        )
    ids = {one.external_id for one in events.collectives}
    launches = sorted(
        (launch, index)
        for index, launch in enumerate(_nccl_launches(events).tolist())
        if events.nccl[index].external_id not in ids
    )
    found = []
    for one in events.collectives:
        kernel_or_none = by_id.get(one.external_id)
        at = bisect_left(launches, (one.start, -1))
        if kernel_or_none is None and at < len(launches) and launches[at][0] <= one.end:
            kernel_or_none = events.nccl[launches[at][1]]
        found.append(replace(one, kernel=kernel_or_none))
    return found


class _Computing:
    """The GPU's computing kernels in order, and what they tell about a collective."""

    def __init__(self, events: _Events) -> None:
        launched, start = _launches(events)
        order = np.argsort(start, kind="stable")
        self._start, self._end, self._launched = start[order], _floats(events.end)[order], launched[order]
        self._until = np.maximum.accumulate(self._end)  # of all up to this one
        self._streams = events.streams
        self._waits = sorted(events.waits)

    def busy(self, start: float, end: float) -> float:
        """How much of this time kernels compute."""
        first, last = np.searchsorted(self._until, start, side="right"), np.searchsorted(self._start, end)
        if last <= first:
            return 0.0
        inside = np.minimum(self._end[first:last], end) - np.maximum(self._start[first:last], start)
        return min(float(inside.clip(0).sum()), end - start)

    def waits_for(self, kernel: _Kernel) -> bool:
        """Whether nothing computes beside ``kernel`` and what comes next has to wait for it.

        It does if it is in the same stream, if it was launched before the collective
        ended and still began after it, or if the CPU waited for the GPU at that time.
        """
        if self.busy(kernel.start, kernel.end) > _BESIDE * (kernel.end - kernel.start):
            return False
        if kernel.stream in self._streams:
            return True
        following = np.searchsorted(self._start, kernel.end)
        if following < len(self._start) and self._launched[following] < kernel.end:
            return True
        at = bisect_left(self._waits, (kernel.end, 0.0)) - 1
        return at >= 0 and self._waits[at][1] >= kernel.end


def _step(own: list[_Collective], begin: float, end: float, gpu: _Computing) -> Step:
    exchanges = []
    for one in own:
        start, stop = (one.kernel.start, one.kernel.end) if one.kernel else (one.start, one.end)
        start = min(max(start, begin), end)
        stop = min(max(stop, start), end)
        blocking = one is not own[-1] and one.kernel is not None and gpu.waits_for(one.kernel)
        exchanges.append(Exchange(one.kind, one.bytes or 0, (start - begin) / 1e6, (stop - begin) / 1e6, blocking))
    beside = 0.0
    if exchanges:
        last_ready = begin + exchanges[-1].ready_s * 1e6
        beside = gpu.busy(last_ready, begin + max(one.end_s for one in exchanges) * 1e6) / 1e6
    return Step((end - begin) / 1e6, tuple(exchanges), beside)


def _provenance(path: Path) -> dict[str, str]:
    """Who measured and on what, from the head of the file."""
    start = head(path)
    first = re.search(rb'"traceEvents"', start)
    start = start[: first.start()] if first else start

    def text(pattern: bytes) -> str:
        match = re.search(pattern, start)
        return match[1].decode(errors="replace") if match else ""

    rank, world, nccl = (
        text(rb'"rank":\s*(\d+)'),
        text(rb'"world_size":\s*(\d+)'),
        text(rb'"nccl_version":\s*"([\d.]+)"'),
    )
    gpu = text(rb'(?s)"deviceProperties".*?"name":\s*"([^"\\]{1,80})"')
    by = "PyTorch profiler (Kineto)" + (f", rank {rank} of {world}" if rank and world else "")
    return {
        "measured_by": by + (f", NCCL {nccl}" if nccl else ""),
        "on": f"{world + ' × ' if world else ''}{gpu}" if gpu else "",
    }

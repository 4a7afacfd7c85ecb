"""PyTorch profiler (Kineto) traces: Chrome's trace-event JSON, also gzipped.

`_kineto_events` reads the file, `_kineto_collectives` finds the collectives in it; here
they get their place in the steps. A step lasts from when the CPU has begun it and the
GPU has finished the one before until both have finished it: so it is right for training
that the GPU limits, where kernels trail behind the ``ProfilerStep`` that launched them,
as well as for training that the CPU limits. Times are in microseconds, up to `_step`.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import Counter, defaultdict
from itertools import pairwise
from pathlib import Path

import numpy as np

from testbed.traces.importing import Profile, Request
from testbed.traces.kineto_collectives import by_step, collectives_of
from testbed.traces.kineto_events import (
    Collective,
    Events,
    Kernel,
    before_events,
    floats,
    launches,
    nccl_launches,
    read_events,
)
from testbed.traces.steps import Exchange, Step
from testbed.traces.trace import TraceError

TITLE = "PyTorch profiler (Kineto) trace, JSON"
USES = frozenset({"group", "sizes", "ranks"})

_BESIDE = 0.01  # part of a collective beside which something must compute for it to count as overlapped


def recognises(head: bytes, path: Path) -> bool:
    return head.lstrip()[:1] == b"{" and (b'"traceEvents"' in head or b'"deviceProperties"' in head)


def read(path: Path, request: Request) -> Profile:
    events = read_events(path)
    windows, said = _windows(events, path)
    collectives, about_them = collectives_of(events, windows, request, path)
    said += about_them
    if without := sum(1 for one in collectives if one.kernel is None):
        said.append(
            f"{without} of {len(collectives)} collectives have no NCCL kernel: their times are those on the CPU"
        )
    computing = _Computing(events)
    steps = [
        _step(own, *bounds, computing)
        for own, bounds in zip(by_step(collectives, len(windows)), _steps(events, windows), strict=True)
    ]
    return Profile(steps, **_provenance(path), assumptions=tuple(said))


def _windows(events: Events, path: Path) -> tuple[list[tuple[float, float]], list[str]]:
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


def _steps(events: Events, windows: list[tuple[float, float]]) -> list[tuple[float, float]]:
    """Begin and end of each step, GPU included."""
    starts, ends = (np.array(column) for column in zip(*windows, strict=True))
    launched, _ = launches(events)
    launched = np.concatenate([launched, nccl_launches(events)])
    kernel_ends = np.concatenate([floats(events.end), np.array([kernel.end for kernel in events.nccl])])
    step = np.searchsorted(starts, launched, side="right")  # 0: before the first step
    drained = np.full(len(windows) + 1, -np.inf)
    inside = (step == 0) | (launched <= ends[np.maximum(step - 1, 0)])
    np.maximum.at(drained, step[inside], kernel_ends[inside])
    drained = np.maximum.accumulate(drained)
    begin, end = np.maximum(starts, drained[:-1]), np.maximum(ends, drained[1:])
    return list(zip(begin.tolist(), end.tolist(), strict=True))


class _Computing:
    """The GPU's computing kernels in order, and what they tell about a collective."""

    def __init__(self, events: Events) -> None:
        launched, start = launches(events)
        order = np.argsort(start, kind="stable")
        self._start, self._end, self._launched = start[order], floats(events.end)[order], launched[order]
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

    def waits_for(self, kernel: Kernel) -> bool:
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


def _step(own: list[Collective], begin: float, end: float, gpu: _Computing) -> Step:
    exchanges = []
    for collective in own:
        start, stop = (
            (collective.kernel.start, collective.kernel.end)
            if collective.kernel
            else (collective.start, collective.end)
        )
        start = min(max(start, begin), end)
        stop = min(max(stop, start), end)
        blocking = collective is not own[-1] and collective.kernel is not None and gpu.waits_for(collective.kernel)
        exchanges.append(
            Exchange(collective.kind, collective.bytes or 0, (start - begin) / 1e6, (stop - begin) / 1e6, blocking)
        )
    beside = 0.0
    if exchanges:
        last_ready = begin + exchanges[-1].ready_s * 1e6
        beside = gpu.busy(last_ready, begin + max(one.end_s for one in exchanges) * 1e6) / 1e6
    return Step((end - begin) / 1e6, tuple(exchanges), beside)


def _provenance(path: Path) -> dict[str, str]:
    start = before_events(path)

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

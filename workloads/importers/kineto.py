"""PyTorch profiler (Kineto) traces: Chrome's trace-event JSON, also gzipped.

`_kineto_events` reads the file, `_kineto_collectives` finds the collectives in it; here
they get their place in the steps. A step lasts from when the CPU has begun it and the
GPU has finished the one before until both have finished it: so it is right for training
that the GPU limits, where kernels trail behind the ``ProfilerStep`` that launched them,
as well as for training that the CPU limits. Times are in microseconds, up to `_step`.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import TypedDict

import numpy as np

from testbed.core.text import decimal
from testbed.traces.importing import Profile, Request, is_of_jax
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
from testbed.traces.kineto_order import Order, align
from testbed.traces.steps import Exchange, Step, length
from testbed.traces.trace import TraceError

TITLE = "PyTorch profiler (Kineto) trace, JSON"
USES = frozenset({"group", "sizes", "ranks"})


def recognises(head: bytes, path: Path) -> bool:
    named = b'"traceEvents"' in head or b'"deviceProperties"' in head
    return head.lstrip()[:1] == b"{" and named and not is_of_jax(head)


def read(path: Path, request: Request) -> Profile:
    events = read_events(path)
    skew = align(events)
    windows, names, said = _windows(events, path)
    if skew:
        said.append(
            f"the GPU's clock was {decimal(abs(skew) / 1e3)} ms {'behind' if skew > 0 else 'ahead of'} the CPU's, by kernels that started before their "
            "launch, or ended after the CPU had waited for them; that is corrected"
        )
    collectives, groups, about_them = collectives_of(events, windows, request, path)
    said += about_them
    if without := sum(1 for one in collectives if one.kernel is None):
        said.append(
            f"{without} of {len(collectives)} collectives have no NCCL kernel: their times are those on the CPU"
        )
    order = Order(events, collectives)
    launched = dict(zip(events.nccl, nccl_launches(events).tolist(), strict=True))
    steps = [
        replace(_step(own, *bounds, order, launched), name=name, remark=_remark(events, window))
        for own, bounds, window, name in zip(
            by_step(collectives, len(windows)), _steps(events, windows), windows, names, strict=True
        )
    ]
    return Profile(steps, assumptions=tuple(said), groups=tuple(groups), **_provenance(path))


def _windows(events: Events, path: Path) -> tuple[list[tuple[float, float]], list[str], list[str]]:
    """When the CPU was in which step, the steps' names, and what that assumes."""
    said = []
    if not events.profiler_steps and events.gpu_steps:
        said.append("steps are those of the GPU: the CPU's ProfilerStep annotations are missing")
    if steps := events.profiler_steps or events.gpu_steps:
        steps.sort(key=lambda step: step[1])
        names = [name for name, _, _ in steps]
        twice = [name for name, count in Counter(names).items() if count > 1]
        if twice:
            raise TraceError(f"{path} has {twice[0]} more than once: give one file per rank, not a merged one")
        return [(start, end) for _, start, end in steps], names, said
    ends = defaultdict(list)
    for name, _, end in events.optimizer_steps:
        ends[name].append(end)
    if len(ends) == 1 and len(own := sorted(next(iter(ends.values())))) > 1:
        said.append(f"steps are taken to end with each {next(iter(ends))}: the trace has no ProfilerStep annotations")
        return list(pairwise(own)), [f"step {number}" for number in range(1, len(own))], said
    found = ", ".join(f"{len(own)} × {name}" for name, own in sorted(ends.items())) or "no Optimizer.step either"
    raise TraceError(
        f"{path} has no 'ProfilerStep#N' annotations, so where a step begins is unknown ({found}; one kind of "
        f"Optimizer.step, at least twice, would do). Profile with torch.profiler's schedule=… and call "
        f"prof.step() after each training step."
    )


def _remark(events: Events, window: tuple[float, float]) -> str:
    """What the CPU wrote in a step, if it did: a checkpoint."""
    return next((name for time, name in events.saves if window[0] <= time <= window[1]), "")


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


def _step(own: list[Collective], begin: float, end: float, order: Order, launched: dict[Kernel, float]) -> Step:
    exchanges = [_exchange(collective, begin, end, order, launched) for collective in own]
    beside = 0.0
    if exchanges:
        first, last = exchanges[-1].ready_s, max(one.end_s for one in exchanges)
        beside = order.busy(begin + first * 1e6, begin + last * 1e6) / 1e6
        if all(one.awaited_s is None for one in exchanges if one.end_s == last):
            beside += length([(max(one.awaited_s, first), one.end_s) for one in exchanges if one.awaited_s is not None])
    return Step((end - begin) / 1e6, tuple(exchanges), beside)


def _exchange(
    collective: Collective, begin: float, end: float, order: Order, launched: dict[Kernel, float]
) -> Exchange:
    ready, stop, awaited = collective.start, collective.end, None
    if (kernel := collective.kernel) is not None:
        launch = launched.get(kernel, collective.start)
        ready, stop = order.ready(kernel, launch), kernel.end
        awaited = order.awaited(kernel, launch, collective.kind)
    ready = min(max(ready, begin), end)
    stop = min(max(stop, ready), end)
    if awaited is not None:
        awaited = max(awaited, ready) if awaited < end else None
    return Exchange(
        collective.kind,
        collective.bytes or 0,
        (ready - begin) / 1e6,
        (stop - begin) / 1e6,
        awaited is not None and awaited == ready,
        awaited_s=None if awaited is None else (awaited - begin) / 1e6,
        group=collective.group.name,
        peer=collective.peer,
        splits=collective.splits,
    )


class _Provenance(TypedDict):
    measured_by: str
    on: str
    rank: int | None
    world: int


def _provenance(path: Path) -> _Provenance:
    start = before_events(path)

    def text(pattern: bytes) -> str:
        match = re.search(pattern, start)
        return match[1].decode(errors="replace") if match else ""

    rank, world, nccl = (
        text(rb'"rank":\s*(\d{1,7})\b'),
        text(rb'"world_size":\s*(\d{1,7})\b'),
        text(rb'"nccl_version":\s*"([\d.]+)"'),
    )
    gpu = text(rb'(?s)"deviceProperties".*?"name":\s*"([^"\\]{1,80})"')
    by = "PyTorch profiler (Kineto)" + (f", rank {rank} of {world}" if rank and world else "")
    return {
        "measured_by": by + (f", NCCL {nccl}" if nccl else ""),
        "on": f"{world + ' × ' if world else ''}{gpu}" if gpu else "",
        "rank": int(rank) if rank else None,
        "world": int(world) if world else 0,
    }

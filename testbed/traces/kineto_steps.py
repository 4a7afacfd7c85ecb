"""The steps of a profile with kernels: what each exchanges, when it is ready, and what waits for it.

A step lasts from when the CPU has begun it and the GPU has finished the one before until both have finished it: so it is right for training
that the GPU limits, where kernels trail behind the step that launched them, as well as for training that the CPU limits. Times are in
microseconds, up to `_step`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from testbed.core.text import decimal
from testbed.traces.importing import Request
from testbed.traces.kineto_collectives import by_step, collectives_of
from testbed.traces.kineto_events import Collective, Events, Kernel, floats, launches, nccl_launches
from testbed.traces.kineto_order import Order, align
from testbed.traces.process_groups import Found
from testbed.traces.steps import Exchange, Step, length


def steps_of(
    events: Events,
    windows: list[tuple[float, float]],
    names: Sequence[str],
    remarks: Sequence[str],
    request: Request,
    path: Path,
) -> tuple[list[Step], list[Found], list[str]]:
    """The steps in which the CPU was during ``windows``, all process groups of the file, and what is assumed; raises `TraceError`."""
    said = []
    if skew := align(events):
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
        replace(_step(own, *bounds, order, launched), name=name, remark=remark)
        for own, bounds, name, remark in zip(
            by_step(collectives, len(windows)), _steps(events, windows), names, remarks, strict=True
        )
    ]
    return steps, groups, said


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

"""PyTorch profiler (Kineto) traces: Chrome's trace-event JSON, also gzipped.

`kineto_events` reads the file, `kineto_collectives` finds the collectives in it, and
`kineto_steps` gives them their place in the steps. `ascend_events` reads the list of events that
the profiler writes on Ascend.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from itertools import pairwise
from pathlib import Path
from typing import TypedDict

from testbed.traces import ascend_events
from testbed.traces.importing import Profile, Request, is_of_jax
from testbed.traces.json_stream import ALL, head
from testbed.traces.kineto_events import Events, before_events, read_events
from testbed.traces.kineto_steps import steps_of
from testbed.traces.trace import TraceError

TITLE = "PyTorch profiler (Kineto) trace, JSON; on Ascend trace_view.json"
USES = frozenset({"group", "sizes", "ranks"})


def recognises(head: bytes, path: Path) -> bool:
    named = b'"traceEvents"' in head or b'"deviceProperties"' in head
    listed = ascend_events.recognises(head)
    return ((head.lstrip()[:1] == b"{" and named) or listed) and not is_of_jax(head)


def read(path: Path, request: Request) -> Profile:
    start = head(path)
    listed = start.lstrip()[:1] == b"["
    if listed or b"Ascend Hardware" in start:
        events = ascend_events.read_events(path, ALL if listed else "traceEvents", request)
    else:
        events = read_events(path)
    windows, names, said = _windows(events, path)
    remarks = [_remark(events, window) for window in windows]
    steps, groups, about = steps_of(events, windows, names, remarks, request, path)
    return Profile(steps, assumptions=(*said, *about), groups=tuple(groups), **_provenance(path))


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
    """The CPU's write in a step, if any: a checkpoint."""
    return next((name for time, name in events.saves if window[0] <= time <= window[1]), "")


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

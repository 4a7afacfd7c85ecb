"""The reader of ``trace_view.json``, which PyTorch's profiler writes on Ascend: a list of events, perhaps with times in text.

The track gives the kind of an event. The process "Ascend Hardware" has the kernels; "Communication" (of older versions "HCCL") has the collectives of
each communicator in a thread "Group N Communication", with the elements of one rank. Flows of category ``async_npu`` go from the CPU's call to
the kernel that it launches. Everything else is as in other traces of the profiler.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from testbed.core.text import shown
from testbed.traces.importing import Request
from testbed.traces.json_stream import brief, items, number
from testbed.traces.kineto_events import (
    NO_CORRELATION,
    Collective,
    Events,
    Kernel,
    add,
    check_room,
    named,
    span_of,
    thread_of,
)
from testbed.traces.nccl import MOST_BYTES, whole_bytes
from testbed.traces.process_groups import Group
from testbed.traces.pytorch import COMMUNICATION, kind_of
from testbed.traces.trace import TraceError

_SIGN = re.compile(rb'Ascend Hardware|hcom_|async_npu|async_task_queue|(?:En|De)queue@|"CANN"|torch_npu|"ts": ?"\d')

_GROUP = re.compile(r"(?:Group (.{1,200}?) )?(?:Aicpu )?Communication")
_BITS = re.compile(r"[A-Za-z]{1,12}(8|16|32|64|128)")
_WAITING = re.compile(r"(?i)wait|record|notify|hcom|hccl|sdma|rdma")  # tasks that compute nothing
_MOST_TRACKS = 100_000
_MOST_FLOWS = 4_000_000

_Track = tuple[str, str]


@dataclass
class _Tracks:
    """The names of the processes and threads."""

    processes: dict[str, str] = field(default_factory=dict)
    threads: dict[_Track, str] = field(default_factory=dict)


@dataclass
class _Flows:
    """From the CPU to the device: when each began, and where and when it ends."""

    begins: dict[str, tuple[float, int]] = field(default_factory=dict)
    ends: dict[tuple[str, str, float], str] = field(default_factory=dict)


@dataclass
class _Work:
    """A kernel, or the executor of a collective, and where its flow ends."""

    events: Events = field(default_factory=Events)
    flows: _Flows = field(default_factory=_Flows)
    kernels: dict[int, tuple[str, str, float]] = field(
        default_factory=dict
    )  # where those that compute are, by their place in `events`
    collectives: dict[int, tuple[str, str, float]] = field(default_factory=dict)  # the same of collectives
    by_hand: set[str] = field(default_factory=set)  # number of groups with `Request.ranks` ranks


def recognises(head: bytes) -> bool:
    """Whether this is the begin of such a list."""
    return head.lstrip()[:1] == b"[" and _SIGN.search(head) is not None


def read_events(path: Path, key: str, request: Request) -> Events:
    """All events of the list ``key`` (see `items`); raises `TraceError`."""
    tracks, work = _tracks(path, key), _Work()
    for event in items(path, key):
        phase = event.get("ph")
        if phase not in ("X", "s", "f"):
            continue
        event = _timed(event)
        if phase != "X":
            _add_flow(work, event, str(phase), path)
            continue
        process = tracks.processes.get(str(event.get("pid")), "")
        if process.startswith("Ascend Hardware"):
            _add_kernel(work, event, path)
        elif process.startswith(("Communication", "HCCL")):
            _add_collective(work, event, tracks, request, path)
        elif not process.startswith(("Overlap Analysis", "CANN", "AI Core")):
            add(work.events, event, path)
    if len(work.by_hand) > 1 and request.group is None:
        names = ", ".join(sorted(work.by_hand)[:8])
        raise TraceError(
            f"{path} has {len(work.by_hand)} communicators ({names}), and --ranks is of one. Name it with --group"
        )
    return _joined(work)


def _tracks(path: Path, key: str) -> _Tracks:
    tracks = _Tracks()
    for event in items(path, key):
        args = event.get("args")
        name = args.get("name") if isinstance(args, dict) else None
        if event.get("ph") != "M" or not isinstance(name, str):
            continue
        if event.get("name") == "process_name":
            tracks.processes[str(event.get("pid"))] = name
        elif event.get("name") == "thread_name":
            tracks.threads[str(event.get("pid")), str(event.get("tid"))] = name
        if len(tracks.processes) + len(tracks.threads) > _MOST_TRACKS:
            raise TraceError(f"{path} names more than {_MOST_TRACKS:,} processes and threads, which no profile has")
    return tracks


def _timed(event: dict[str, Any]) -> dict[str, Any]:
    """The same with times as numbers, where they are text."""
    found = {}
    for key in ("ts", "dur"):
        if isinstance(value := event.get(key), str) and len(value) <= 40:
            try:
                found[key] = float(value)
            except ValueError:
                continue
    return {**event, **found}


def _where(event: dict[str, Any], start: float) -> tuple[str, str, float]:
    return str(event.get("pid")), str(event.get("tid")), start


def _add_flow(work: _Work, event: dict[str, Any], phase: str, path: Path) -> None:
    if event.get("cat") != "async_npu":
        return
    moment, key = number(event, "ts", f"{path}: a flow of async_npu"), shown(event.get("id"), 40)
    if phase == "s":
        work.flows.begins[key] = (moment, thread_of(work.events, event))
    else:
        work.flows.ends[_where(event, moment)] = key
    if len(work.flows.begins) + len(work.flows.ends) > _MOST_FLOWS:
        raise TraceError(f"{path} has more than {_MOST_FLOWS:,} flows: profile fewer steps (three do)")


def _add_kernel(work: _Work, event: dict[str, Any], path: Path) -> None:
    name, args = named(event, path)
    if _WAITING.search(name) or _WAITING.search(str(args.get("Task Type", ""))):
        return
    events, (start, end) = work.events, span_of(event, path)
    stream = str(args.get("Stream Id", event.get("tid")))
    events.start.append(start)
    events.end.append(end)
    events.correlation.append(NO_CORRELATION)
    events.stream.append(events.streams.setdefault(stream, len(events.streams)))
    work.kernels[len(events.start) - 1] = _where(event, start)


def _add_collective(work: _Work, event: dict[str, Any], tracks: _Tracks, request: Request, path: Path) -> None:
    name, args = named(event, path)
    if not COMMUNICATION.search(name):
        return
    start, end = span_of(event, path)
    where = f"{path}: {shown(name, 80)} at ts {start:.0f}"
    track = tracks.threads.get((str(event.get("pid")), str(event.get("tid"))), "")
    found = _GROUP.fullmatch(track)
    called, ranks = shown((found[1] if found else track) or "", 80), _ranks(args)
    if not ranks and request.ranks:
        work.by_hand.add(called)
    group = Group(called, ranks or request.ranks or 0)
    kernel = Kernel(shown(name, 200), start, end, f"group {group.name}", NO_CORRELATION, "")
    kind = kind_of(name.lower().replace("receive", "recv"))
    bits = _BITS.fullmatch(str(args.get("data_type", "")))
    if kind is None:
        work.events.on_kernels.skipped[shown(name.split("__")[0], 80)] += 1
    elif bits is not None and isinstance(args.get("count"), int) and not isinstance(args["count"], bool):
        part = int(number(args, "count", where)) * int(bits[1]) // 8
        size = part if "alltoallv" in name.lower() else whole_bytes(kind, part, group.workers, where)
        if size > MOST_BYTES:
            raise TraceError(
                f"{where}: 'count' is {brief(args['count'])}, which is implausible. Export the profile again"
            )
        if size:
            kernel = replace(kernel, told=Collective(kind, size, group, start, end))
    work.events.nccl.append(kernel)
    work.collectives[len(work.events.nccl) - 1] = _where(event, start)
    check_room(work.events, path)


def _ranks(args: dict[str, Any]) -> int:
    """``rank_size``, which newer versions write; 0 without it."""
    told = args.get("rank_size")
    return told if isinstance(told, int) and not isinstance(told, bool) and 0 < told < 1 << 24 else 0


def _joined(work: _Work) -> Events:
    """The events, with the launches that flow events give."""
    events = work.events
    numbers = {key: NO_CORRELATION - 1 - place for place, key in enumerate(work.flows.begins)}
    for key, (moment, thread) in work.flows.begins.items():
        events.launch.append(moment)
        events.launch_correlation.append(numbers[key])
        events.launch_thread.append(thread)

    def launched(end: tuple[str, str, float]) -> int:
        return numbers.get(work.flows.ends.get(end, ""), NO_CORRELATION)

    for place, end in work.kernels.items():
        events.correlation[place] = launched(end)
    for place, end in work.collectives.items():
        events.nccl[place] = replace(events.nccl[place], correlation=launched(end))
    return events

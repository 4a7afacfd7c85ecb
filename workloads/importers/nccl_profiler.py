"""NCCL's example profiler (``plugins/profiler/example``): Chrome's trace events, one a line, in a list.

.. code-block:: text

    [
    {"name": "AllReduce", "cat": "COLL", "ph": "b", "id": 0, "pid": 812, "tid": 1, "ts": 111994.4, "args": {"SeqNum": 0, "CommHash": 1493613951195738943, "Rank": 0, "Count": 262144, "Datatype": "ncclFloat32", "nChannels": 2}},
    {"name": "KernelCh", "cat": "GPU", "ph": "b", "id": 0, "pid": 812, "tid": 1, "ts": 119711.8, "args": {"Channel": 0}},
    {"name": "KernelCh", "cat": "GPU", "ph": "e", "id": 0, "pid": 812, "tid": 1, "ts": 120165.3},
    {"name": "AllReduce", "cat": "COLL", "ph": "e", "id": 0, "pid": 812, "tid": 1, "ts": 120170.1},

The lines between the begin and the end of an exchange are its own. Some versions write other lines that are no JSON; only those of
exchanges and of their kernels are read. How many ranks a communicator has is not recorded.
"""

from __future__ import annotations

import json
import re
from collections import Counter, deque
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from testbed.core.text import shown
from testbed.traces.importing import Profile, Request
from testbed.traces.json_stream import brief, number
from testbed.traces.nccl import MOST_BYTES, Logged, about, calls_of, element_bytes, kind_of, whole_bytes
from testbed.traces.process_groups import Group
from testbed.traces.repeating import MOST, Call, about_first, back_to_back, chosen, steps_of
from testbed.traces.text_lines import lines
from testbed.traces.trace import TraceError

TITLE = "NCCL example profiler, Chrome trace events (COLL, P2P)"
USES = frozenset({"group", "ranks", "steps"})

_EVENT = re.compile(r'"cat": ?"(COLL|P2P|GPU)", ?"ph": ?"([be])"')
_MARK = re.compile(rb'"cat": ?"(?:COLL|P2P|COLL_API|P2P_API|GROUP_API|GROUP)", ?"ph": ?"b"')


def recognises(head: bytes, path: Path) -> bool:
    return head.lstrip()[:1] == b"[" and _MARK.search(head) is not None


def read(path: Path, request: Request) -> Profile:
    record = _Record(path, request.ranks or 0)
    for at, line in enumerate(lines(path), 1):
        record.read(line, f"{path}, line {at}")
    if not record.logged:
        raise TraceError(
            f"{path} has no exchange that can be replayed{'; ' + '; '.join(about(record.skipped)) if record.skipped else ''}. "
            "Run with NCCL_PROFILE_EVENT_MASK=70 (collectives, messages, kernels); each event is a line of its own"
        )
    logged = sorted(record.logged, key=lambda one: one.call.start_s or 0.0)
    calls, said = calls_of(logged)
    communicators = {one.group for one in calls}
    if request.ranks and len(communicators) > 1 and request.group is None:
        named = ", ".join(sorted(shown(one.name, 40) for one in communicators)[:8])
        raise TraceError(
            f"{path} has {len(communicators)} communicators ({named}), and --ranks is of one. Name it with --group"
        )
    calls, groups = chosen(calls, request.group, path)
    steps, assumed = steps_of(calls, request, path)
    said += [*about_first(record.count), *about(record.skipped), *assumed]
    if record.without_kernels:
        said.append(
            f"{record.without_kernels} exchanges have no kernel: their times are those of the CPU's calls. NCCL_PROFILE_EVENT_MASK=70 records kernels"
        )
    ranks = {one.rank for one in logged}
    return Profile(
        steps, measured_by="NCCL example profiler", assumptions=tuple(said), groups=tuple(groups),
        rank=ranks.pop() if len(ranks) == 1 else None, back_to_back=back_to_back(steps),
    )  # fmt: skip


@dataclass
class _Open:
    """An exchange whose end has not been read."""

    event: dict[str, Any]
    kernels: list[float]  # begins and ends


class _Record:
    """The exchanges of a file, whose communicators have ``ranks``; 0: not known."""

    def __init__(self, path: Path, ranks: int) -> None:
        self.path, self.ranks = path, ranks
        self.logged: deque[Logged] = deque(maxlen=MOST)
        self.skipped: Counter[str] = Counter()
        self.count = 0
        self.without_kernels = 0
        self._open: _Open | None = None

    def read(self, line: str, where: str) -> None:
        if (found := _EVENT.search(line)) is None:
            return
        category, phase = found.groups()
        if category == "GPU" and self._open is None:
            return
        event = _parsed(line, where)
        if category == "GPU":
            assert self._open is not None
            self._open.kernels.append(number(event, "ts", where))
        elif phase == "b":
            self._open = _Open(event, [])
        elif self._open is not None:
            self._add(self._open, number(event, "ts", where), where)
            self._open = None

    def _add(self, one: _Open, stop: float, where: str) -> None:
        name, args = one.event.get("name"), one.event.get("args")
        if not isinstance(name, str) or not isinstance(args, dict):
            raise TraceError(f"{where}: its begin has the name {brief(name)} and the args {brief(args)}")
        kind, count = kind_of(name), number(args, "Count", where)
        each = element_bytes(args.get("Datatype"))
        if kind is None or not count:
            self.skipped[name if kind is None else f"{name} of no bytes"] += 1
            return
        if each is None:
            raise TraceError(f"{where}: 'Datatype' is {brief(args.get('Datatype'))}, which is none of NCCL's")
        if count != int(count) or not count * each <= MOST_BYTES:
            raise TraceError(f"{where}: 'Count' is {brief(count)}, which is implausible. Check the file")
        rank = int(number(args, "Rank", where))
        peer = str(int(number(args, "Peer", where))) if kind in ("send", "recv") else ""
        begin = number(one.event, "ts", where)
        if one.kernels:
            begin, stop = min(one.kernels), max(one.kernels)
        else:
            self.without_kernels += 1
        group = Group(shown(args.get("CommHash", ""), 40), self.ranks)
        size = whole_bytes(kind, int(count) * each, self.ranks, str(self.path))
        call = Call(kind, size, group, peer, start_s=begin / 1e6, end_s=max(begin, stop) / 1e6)
        self.count += 1
        self.logged.append(Logged(call, rank))


def _parsed(line: str, where: str) -> dict[str, Any]:
    try:
        event = json.loads(line.strip().removeprefix("[").removesuffix("]").removesuffix(","))
    except (ValueError, RecursionError) as error:
        raise TraceError(
            f"{where} is not JSON: {brief(line.strip())}. Is the file cut off? Remove that line"
        ) from error
    if not isinstance(event, dict):
        raise TraceError(f"{where} is {brief(event)}, which is no event")
    return event

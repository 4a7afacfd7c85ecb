"""NCCL's log: ``NCCL_DEBUG=INFO`` with ``NCCL_DEBUG_SUBSYS=INIT,COLL``.

.. code-block:: text

    node1:812:901 [0] NCCL INFO ncclCommInitRank comm 0x5581 rank 0 nranks 8 cudaDev 0 nvmlDev 0 busId 1b000 commId 0x7d3f - Init COMPLETE
    node1:812:901 [0] NCCL INFO AllReduce: opCount 5 sendbuff 0x7f01 recvbuff 0x7f01 count 1048576 datatype 7 op 0 root 0 comm 0x5581 [nranks=8] stream 0x55a0

It has the exchanges, in their order, without times. Processes that share a log are distinguished by host, process and GPU; one of
them is imported. ``opCount`` is the same for all sends and receives of a batch.
"""

from __future__ import annotations

import re
from collections import Counter, deque
from pathlib import Path

from testbed.core.text import shown
from testbed.traces.importing import Profile, Request
from testbed.traces.json_stream import brief
from testbed.traces.nccl import MOST_BYTES, Logged, about, calls_of, element_bytes, kind_of, whole_bytes
from testbed.traces.process_groups import Group
from testbed.traces.repeating import MOST, Call, about_first, back_to_back, chosen, steps_of
from testbed.traces.text_lines import lines
from testbed.traces.trace import TraceError

TITLE = "NCCL log (NCCL_DEBUG=INFO, NCCL_DEBUG_SUBSYS=INIT,COLL)"
USES = frozenset({"group", "iteration", "ranks", "steps"})

_PROCESS = re.compile(r"(\S{1,300}?:\d{1,10}):\d{1,10} \[(\d{1,4})\] NCCL INFO ")
_CALL = re.compile(
    r"(\w{1,40}): opCount (?:0x)?([0-9a-f]{1,16}) sendbuff \S{1,40} recvbuff \S{1,40} count (\d{1,19}) datatype (\d{1,3}) "
    r"op \d{1,3} root (-?\d{1,7}) comm (\S{1,40})(?: \[nranks=(\d{1,7})\])?"
)
_INIT = re.compile(r"comm (\S{1,40}) rank (\d{1,7}) nranks (\d{1,7})\b")
_ID = re.compile(r"commId (\S{1,40})")
_MOST_COMMUNICATORS = 10_000


def recognises(head: bytes, path: Path) -> bool:
    return b" NCCL INFO " in head


def read(path: Path, request: Request) -> Profile:
    log = _Log(path, request)
    for line in lines(path):
        log.read(line)
    if not log.logged:
        raise TraceError(
            f"{path} names no exchange{log.without}. Run with NCCL_DEBUG=INFO and NCCL_DEBUG_SUBSYS=INIT,COLL, and import that log"
        )
    calls, said = calls_of(log.logged)
    calls, groups = chosen(calls, request.group, path)
    steps, assumed = steps_of(calls, request, path)
    said += [*log.said(), *about(log.skipped), *assumed]
    ranks = {one.rank for one in log.logged}
    return Profile(
        steps, measured_by="NCCL log", assumptions=tuple(said), groups=tuple(groups),
        rank=ranks.pop() if len(ranks) == 1 else None, back_to_back=back_to_back(steps),
        timed=False,
    )  # fmt: skip


class _Log:
    """The exchanges of one process of a log."""

    def __init__(self, path: Path, request: Request) -> None:
        self.path, self.request = path, request
        self.logged: deque[Logged] = deque(maxlen=MOST)
        self.skipped: Counter[str] = Counter()
        self._process = ""
        self._others: set[str] = set()
        self._communicators: dict[tuple[str, str], tuple[str, int, int]] = {}  # of a process: name, rank, ranks
        self._count = 0
        self._infos = 0

    @property
    def without(self) -> str:
        return (
            f": {self._infos:,} of its lines are NCCL's, and none of them is of the subsystem COLL"
            if self._infos
            else ""
        )

    def read(self, line: str) -> None:
        place = line.find(" NCCL INFO ")
        found = _PROCESS.search(line, max(0, place - 340)) if place >= 0 else None
        if found is None:
            return
        self._infos += 1
        process, said = f"{found[1]} [{found[2]}]", line[found.end() :]
        if (call := _CALL.match(said)) is not None:
            if not self._process:
                self._process = process
            if process == self._process:
                self._add(call)
            elif len(self._others) < _MOST_COMMUNICATORS:
                self._others.add(process)
        elif (init := _INIT.search(said)) is not None and len(self._communicators) < _MOST_COMMUNICATORS:
            name = _ID.search(said)
            known = (shown(name[1] if name else init[1], 40), int(init[2]), int(init[3]))
            self._communicators[process, init[1]] = known

    def _add(self, call: re.Match[str]) -> None:
        name, count, type_ = call[1], int(call[3]), int(call[4])
        kind = kind_of(name)
        if kind is None or not count:
            self.skipped[name if kind is None else f"{name} of no bytes"] += 1
            return
        where = f"{self.path}: the {name} with opCount {call[2]}"
        each = element_bytes(type_)
        if each is None:
            raise TraceError(f"{where}: datatype {brief(call[4])} is none of NCCL's")
        group, rank, workers = self._communicators.get((self._process, call[6]), (shown(call[6], 40), None, 0))
        workers = int(call[7] or 0) or workers or self.request.ranks or 0
        size = whole_bytes(kind, count * each, workers, where)
        if size > MOST_BYTES:
            raise TraceError(f"{where}: count {brief(call[3])} is implausible. Check the file")
        peer = str(int(call[5])) if kind in ("send", "recv") else ""
        self._count += 1
        self.logged.append(
            Logged(Call(kind, size, Group(group, workers), peer), rank, int(call[2], 16) if peer else None)
        )

    def said(self) -> list[str]:
        said = []
        if self._others:
            said.append(
                f"the log is of {len(self._others) + 1} processes: that of {shown(self._process, 80)} is imported, and the others are taken to do the same"
            )
        return [*said, *about_first(self._count)]

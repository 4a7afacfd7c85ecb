"""When a collective of a PyTorch profiler trace was ready, and what waited for it.

A kernel of NCCL starts when the kernels that it waits for have ended and its stream is free. A bucket of gradients that
queues behind others was ready long before. So its start is no measure of that, and these values are used:

- ``cudaStreamWaitEvent``, where the profile has it (category ``cuda_sync``): it names the stream and the moment waited for;
- otherwise the order of the CPU's launches: a collective waits for what was launched before it;
- calls in which the CPU waits for the GPU, and the gaps between the kernels that compute.

Times are the trace's: microseconds.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from testbed.traces.kineto_events import (
    Collective,
    Events,
    Floats,
    Kernel,
    call_times,
    floats,
    ints,
    launches,
    launches_are_recorded,
    nccl_launches,
)
from testbed.traces.trace import Kind

_PROMPT = 100.0  # after what it waits for a kernel starts within this
_TICK = 1.0  # clocks may differ by this
_IDLE = 20.0  # a GPU that stands still for longer waits for something; a CPU that waited goes on within this
_BESIDE = 0.01  # part of a collective during which something must compute for it to count as overlapped
_SKEW = 200.0  # by how much the GPU's clock must be off to be corrected
# Computing goes on with their result: without other evidence the next kernel is taken to wait for them
_FEEDING: frozenset[Kind] = frozenset({"all_gather", "all_to_all", "broadcast", "recv"})


def align(events: Events) -> float:
    """Correct the GPU's clock by the CPU's, in place; by how many microseconds.

    No kernel starts before it is launched, or ends after a call that waits for all kernels.
    """
    if not launches_are_recorded(events):
        return 0.0
    launched, start = launches(events)
    launched = np.concatenate([launched, nccl_launches(events)])
    start = np.concatenate([start, np.array([kernel.start for kernel in events.nccl], dtype=np.float64)])
    ends = np.concatenate([floats(events.end), np.array([kernel.end for kernel in events.nccl], dtype=np.float64)])
    by = float((launched - start).max(initial=0.0))
    if by <= _SKEW:
        order = np.argsort(launched, kind="stable")
        latest = np.maximum.accumulate(ends[order])
        before = np.searchsorted(launched[order], [begin for begin, _ in events.device_waits])
        late = (
            latest[number - 1] - end for number, (_, end) in zip(before, events.device_waits, strict=True) if number
        )
        by = -max(0.0, *late, 0.0)
    if abs(by) <= _SKEW:
        return 0.0
    for column in (events.start, events.end):
        for index, one in enumerate(column):
            column[index] = one + by
    events.nccl = [replace(kernel, start=kernel.start + by, end=kernel.end + by) for kernel in events.nccl]
    return by


@dataclass(frozen=True)
class _Waits:
    """The waits of one stream for one other: when they were called, and the moment that each waits for."""

    called: Floats
    recorded: Floats


class Order:
    """The GPU's computing kernels, and what they and the collectives wait for."""

    def __init__(self, events: Events, collectives: Sequence[Collective]) -> None:
        launched, start = launches(events)
        order = np.argsort(start, kind="stable")
        self._start, self._end, self._launched = start[order], floats(events.end)[order], launched[order]
        self._stream = ints(events.stream)[order]
        self._until = np.maximum.accumulate(self._end)  # of all up to this one
        by_end = np.argsort(self._end, kind="stable")
        self._ends, self._launched_by_end, self._stream_by_end = (
            self._end[by_end],
            self._launched[by_end],
            self._stream[by_end],
        )
        self._numbers = events.streams
        self._computing = {int(one) for one in np.unique(self._stream)}
        self._compute_streams = {stream for stream, number in events.streams.items() if number in self._computing}
        self._cpu_waits = sorted(events.waits)
        ends = defaultdict(list)
        for kernel in events.nccl:
            ends[kernel.stream].append(kernel.end)
        self._ended = {stream: sorted(own) for stream, own in ends.items()}
        self._all_ended = sorted(kernel.end for kernel in events.nccl)
        self._fed = sorted(one.kernel.end for one in collectives if one.kernel is not None and one.kind in _FEEDING)
        self._all_launched = sorted(nccl_launches(events).tolist())
        self._stream_waits = _stream_waits(events)

    def busy(self, start: float, end: float) -> float:
        """How much of this time something computes."""
        first, last = np.searchsorted(self._until, start, side="right"), np.searchsorted(self._start, end)
        if last <= first:
            return 0.0
        begin = np.maximum(self._start[first:last], start)
        covered = np.minimum(self._end[first:last], end)
        before = np.maximum.accumulate(np.concatenate([[start], covered[:-1]]))  # kernels of several streams overlap
        return float((covered - np.maximum(begin, before)).clip(0).sum())

    def ready(self, kernel: Kernel, launched: float) -> float:
        """When all that ``kernel`` waits for had happened: its launch, and the end of kernels of other streams."""
        launched = min(launched, kernel.start)
        latest = kernel.start + _TICK
        if (told := self._told(kernel, launched)) is not None:
            return min(kernel.start, max(launched, told))
        first, last = np.searchsorted(self._ends, (launched, latest), side="right")
        before = np.flatnonzero(self._launched_by_end[first:last] <= launched)
        known = min(kernel.start, float(self._ends[first + before[-1]])) if len(before) else launched
        if kernel.start - known <= _PROMPT or self._queued(kernel):
            return known
        if self._runs_on(kernel.start, launched):  # so it waits for another stream
            return kernel.start
        at = bisect_right(self._all_ended, latest) - 1
        ended = max(float(self._ends[last - 1]) if last else -np.inf, self._all_ended[at] if at >= 0 else -np.inf)
        return max(known, min(ended, kernel.start)) if kernel.start - ended <= _PROMPT else known

    def _queued(self, kernel: Kernel) -> bool:
        """Whether it started because the one before it in its stream had ended."""
        own = self._ended[kernel.stream]
        at = bisect_right(own, kernel.start + _TICK) - 1
        return at >= 0 and kernel.start - own[at] <= _PROMPT

    def _runs_on(self, moment: float, launched: float) -> bool:
        """Whether a kernel launched by then runs at ``moment``."""
        first, last = (
            np.searchsorted(self._until, moment + _TICK, side="right"),
            np.searchsorted(self._start, moment - _TICK),
        )
        inside = (self._end[first:last] > moment + _TICK) & (self._launched[first:last] <= launched)
        return bool(inside.any())

    def _told(self, kernel: Kernel, launched: float) -> float | None:
        """The end of the work that its stream had to wait for; None if the profile lacks it."""
        own = self._stream_waits.get(kernel.stream)
        if not own:
            return None
        found = -np.inf
        for other, waits in own.items():
            at = np.searchsorted(waits.called, launched, side="right")
            number = self._numbers.get(other, -1)
            if at and number in self._computing:
                recorded = waits.recorded[:at].max()
                last = np.searchsorted(self._ends, kernel.start + _TICK, side="right")
                first = np.searchsorted(self._ends, launched, side="right")
                inside = (self._stream_by_end[first:last] == number) & (self._launched_by_end[first:last] <= recorded)
                found = max(found, *(self._ends[first:last][inside][-1:].tolist() or [-np.inf]))
        return float(found)

    def awaited(self, kernel: Kernel, launched: float, kind: Kind) -> float | None:
        """When computing first stands still until ``kernel`` has ended, or goes on with its result; None if nothing is known to."""
        following = self._following(kernel, launched)
        if following is None:
            return None
        next_start, next_launch = float(self._start[following]), float(self._launched[following])
        idle_from = float(self._until[following - 1]) if following else -np.inf
        if not self._depends(kernel, kind, idle_from, next_start, next_launch):
            return None
        held = (
            next_launch <= kernel.end + _IDLE
            or kernel.stream in self._compute_streams
            or self._held_the_cpu(kernel, next_launch)
            or _any_within(self._all_launched, kernel.end - _TICK, kernel.end + _IDLE)  # a CPU that waited goes on
        )
        return idle_from if held and idle_from < kernel.end else next_start

    def _following(self, kernel: Kernel, launched: float) -> int | None:
        """The first computing kernel after ``kernel`` that was launched after it, or waits for its stream where that is recorded."""
        first = int(np.searchsorted(self._start, kernel.end - _TICK))
        may = self._launched[first:] >= launched
        if self._stream_waits:
            depends = np.zeros(len(may), dtype=bool)
            for stream, own in self._stream_waits.items():
                waits = own.get(kernel.stream)
                if waits is None or stream not in self._numbers:
                    continue
                calls = waits.called[waits.recorded >= launched]
                if len(calls):
                    depends |= (self._stream[first:] == self._numbers[stream]) & (self._launched[first:] >= calls.min())
            may &= depends | (self._stream[first:] == self._numbers.get(kernel.stream, -1))
        found = int(np.argmax(may)) if len(may) else 0
        return first + found if len(may) and may[found] else None

    def _depends(self, kernel: Kernel, kind: Kind, idle_from: float, next_start: float, next_launch: float) -> bool:
        if self._stream_waits or kind in _FEEDING or kernel.stream in self._compute_streams:
            return True
        if self._held_the_cpu(kernel, next_launch):
            return True
        if (
            next_launch
            > kernel.end + _IDLE  # what comes next waits for the last to end, and for a result rather than a sum
            or idle_from >= kernel.end
            or _any_within(self._all_ended, kernel.end + _PROMPT, next_start)
            or _any_within(self._fed, next_start - _PROMPT, next_start)
        ):
            return False
        by_itself = self.busy(kernel.start, kernel.end) <= _BESIDE * (kernel.end - kernel.start)
        since = idle_from if next_launch > kernel.end - _TICK else max(idle_from, next_launch)
        return by_itself or kernel.end - since > _IDLE

    def _held_the_cpu(self, kernel: Kernel, next_launch: float) -> bool:
        """Whether the CPU waited until ``kernel`` had ended, and only then launched what came next."""
        at = bisect_left(self._cpu_waits, (kernel.end, -np.inf)) - 1
        if at < 0:
            return False
        _, end = self._cpu_waits[at]
        return end >= kernel.end - _TICK and next_launch >= end - _TICK


def _any_within(moments: Sequence[float], start: float, end: float) -> bool:
    """Whether any of the sorted ``moments`` is after ``start`` and not after ``end``."""
    return bisect_right(moments, start) < bisect_right(moments, end)


def _stream_waits(events: Events) -> dict[str, dict[str, _Waits]]:
    """By the stream that waits, and the one waited for."""
    waits = events.stream_waits
    called = call_times(events, [one.correlation for one in waits])
    recorded = call_times(events, [one.record for one in waits])
    found: defaultdict[str, defaultdict[str, list[tuple[float, float]]]] = defaultdict(lambda: defaultdict(list))
    for one, call, record in zip(waits, called.tolist(), recorded.tolist(), strict=True):
        if record == record:  # it is in the file
            found[one.stream][one.awaited].append((call if call == call else one.time, record))
    return {
        stream: {
            other: _Waits(*(np.array(column) for column in zip(*sorted(pairs), strict=True)))
            for other, pairs in own.items()
        }
        for stream, own in found.items()
    }

"""Iterations of a record that does not mark them: the sequence of exchanges that recurs.

NCCL's logs and profilers name each exchange of a rank, and no training step. An iteration is the shortest sequence of exchanges that recurs over
the longest stretch. Exchanges of a few kilobytes (a loss, a norm) do not decide, and belong to the iteration in which they take place.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from statistics import median

import numpy as np
import numpy.typing as npt

from testbed.core.text import count
from testbed.core.units import Duration, Size
from testbed.traces.importing import Request
from testbed.traces.process_groups import NO_GROUP, Found, Group, choose, is_tensor_parallel
from testbed.traces.steps import Exchange, Step
from testbed.traces.trace import Kind, TraceError

MOST = 40_000  # number of the last exchanges of a record that are used
_SMALL = 4096  # bytes of an exchange that does not decide where an iteration ends
_PART = 0.7  # of the exchanges of a record that its iterations have to be
_FEWEST = 2  # times that a sequence has to take place
_BESIDE: tuple[Kind, ...] = ("all_reduce", "reduce_scatter")  # computing goes on while these take place
_SAMPLES = 16  # places of a stretch that are compared first
_PAUSE_S = 50e-6  # a collective that starts so soon after another one has ended may have been ready before

Numbers = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Call:
    """An exchange of a rank. Times are in seconds by the record's clock, None where it has none."""

    kind: Kind
    bytes: int  # of the whole tensor
    group: Group = NO_GROUP
    peer: str = ""  # of a message: the other rank
    splits: tuple[int, ...] = ()
    start_s: float | None = None
    end_s: float | None = None
    waits: bool | None = None  # whether computing stands still meanwhile; None: by its kind


@dataclass(frozen=True)
class _Stretch:
    """Where a sequence of ``period`` exchanges recurs."""

    period: int
    first: int
    count: int  # of exchanges, whole sequences or not


def steps_of(calls: Sequence[Call], request: Request, path: Path) -> tuple[list[Step], list[str]]:
    """The iterations of a rank, and what that assumes; raises `TraceError`.

    Without times the computing is ``request.iteration``, in equal parts before each exchange.
    """
    said = about_first(len(calls))
    calls = calls[-MOST:]
    timed = all(one.start_s is not None for one in calls)
    if timed:
        calls = sorted(calls, key=lambda one: one.start_s or 0.0)
        if request.iteration is not None:
            raise TraceError(f"{path}: --iteration is for a record without times, and this one has some. Leave it out")
    bounds, about = iterations(calls, request.steps, path, timed)
    said += about
    parts = [list(calls[first:last]) for first, last in bounds]
    if len({tuple((one.kind, one.group, one.peer) for one in own) for own in parts}) > 1:
        large = [[one for one in own if one.bytes > _SMALL] for own in parts]
        if not all(large):
            large = parts
        said.append(
            f"{sum(map(len, parts)) - sum(map(len, large))} exchanges of at most {Size(_SMALL)}, which not every iteration has, were left out"
        )
        parts = large
    if not timed:
        return [untimed(own, request.iteration) for own in parts], [*said, about_computing(request.iteration)]
    until = np.maximum.accumulate([one.end_s or 0.0 for one in calls])
    steps = [_timed(own, float(until[first - 1])) for (first, _), own in zip(bounds, parts, strict=True) if first]
    if not steps:
        raise TraceError(
            f"{path}: it holds one iteration and nothing before it, so how long an iteration takes is unknown. Record at least five training steps"
        )
    return steps, [*said, *_about_times(parts)]


def about_first(count: int) -> list[str]:
    """The omission from a record of so many exchanges, in a sentence."""
    return [f"the last {MOST:,} of {count:,} exchanges are looked at; the others were left out"] if count > MOST else []


def iterations(
    calls: Sequence[Call], steps: int | None, path: Path, timed: bool
) -> tuple[list[tuple[int, int]], list[str]]:
    """Bounds of each iteration among ``calls``, and what is assumed."""
    large = [place for place, one in enumerate(calls) if one.bytes > _SMALL] or list(range(len(calls)))
    if steps == 1:
        return [(0, len(calls))], ["the whole record is one iteration: --steps 1"]
    found = None
    for with_sizes in (True, False):
        stretch = _longest(_marks([calls[place] for place in large], with_sizes), steps)
        if stretch is not None and (with_sizes or stretch.period > 1 or steps) and stretch.count >= _PART * len(large):
            found = stretch
            break
    if found is None:
        often = f"no sequence of its {count(len(calls), 'exchange')} takes place {steps or 'several'} times in a row"
        remedy = (
            f"--steps {steps} does not fit: give the number of training steps in the file, or leave it out"
            if steps
            else "Record at least five training steps, or give their number with --steps (1: the whole record is one)"
        )
        raise TraceError(f"{path}: {often}, so its iterations are unknown. {remedy}")
    start = found.first + (_turn(calls, large, found) if timed else 0)
    starts = list(range(start, found.first + found.count - found.period + 1, found.period))
    ends = [*starts[1:], starts[-1] + found.period]
    bounds = [
        (large[first], large[last] if last < len(large) else len(calls))
        for first, last in zip(starts, ends, strict=True)
    ]
    said = [
        f"an iteration is the sequence of {count(found.period, 'exchange')}{_larger(calls, large)} that takes place {len(bounds)} times in a row"
        + (", as --steps says" if steps else "")
    ]
    if outside := [*calls[: bounds[0][0]], *calls[bounds[-1][1] :]]:
        kinds = ", ".join(f"{often} {kind}" for kind, often in Counter(one.kind for one in outside).most_common())
        size = Size(sum(one.bytes for one in outside))
        said.append(
            f"{len(outside)} of {len(calls)} exchanges, before and after these iterations, were left out ({kinds}, {size})"
        )
    return bounds, said


def _larger(calls: Sequence[Call], large: Sequence[int]) -> str:
    return f" of more than {Size(_SMALL)}" if len(large) < len(calls) else ""


def _marks(calls: Sequence[Call], with_sizes: bool) -> Numbers:
    """A number for each exchange; the same one for those that may be the same one of two iterations."""
    known: dict[tuple[object, ...], int] = {}
    uneven = {"all_to_all"}  # by how the tokens fall
    keys = ((one.kind, one.group, one.peer, one.bytes if with_sizes and one.kind not in uneven else 0) for one in calls)
    return np.array([known.setdefault(key, len(known)) for key in keys], dtype=np.int64)


def _longest(marks: Numbers, steps: int | None) -> _Stretch | None:
    """Where a sequence recurs for longest; of those as long, the shortest (with ``steps`` given, the one that takes place so often)."""
    best: _Stretch | None = None
    total = len(marks)
    periods = range(1, total // _FEWEST + 1)
    if steps:
        periods = range(total // steps, total // (2 * steps), -1)
    for period in periods:
        need = max(period * (_FEWEST - 1), best.count - period + 1 if best is not None else 0)
        if need > total - period:
            continue
        stride = max(1, need // _SAMPLES)
        if stride > 1:  # a stretch so long shows in a few of its places
            sampled = marks[period::stride] == marks[: total - period : stride]
            if _longest_run(sampled)[0] < need // stride - 1:
                continue
        length, first = _longest_run(marks[period:] == marks[: total - period])
        if length >= need:
            best = _Stretch(period, first, length + period)
    return best


def _longest_run(same: npt.NDArray[np.bool_]) -> tuple[int, int]:
    """Length and begin of the longest stretch of True."""
    edges = np.flatnonzero(np.diff(np.concatenate(([False], same, [False])).astype(np.int8)))
    if not len(edges):
        return 0, 0
    lengths = edges[1::2] - edges[::2]
    longest = int(np.argmax(lengths))
    return int(lengths[longest]), int(edges[2 * longest])


def _turn(calls: Sequence[Call], large: Sequence[int], found: _Stretch) -> int:
    """With which exchange of the sequence an iteration begins: the one before which nothing is exchanged for longest."""
    times = [(calls[place].start_s or 0.0, calls[place].end_s or 0.0) for place in large]
    until = np.maximum.accumulate([end for _, end in times])
    pauses: dict[int, list[float]] = {}
    for place in range(max(found.first, 1), found.first + found.count):
        pauses.setdefault((place - found.first) % found.period, []).append(times[place][0] - float(until[place - 1]))
    return max(sorted(pauses), key=lambda place: median(pauses[place]))


def _waits(one: Call) -> bool:
    return one.waits if one.waits is not None else one.kind not in _BESIDE or is_tensor_parallel(one.group)


def _exchange(one: Call, ready_s: float, end_s: float) -> Exchange:
    return Exchange(
        one.kind, one.bytes, ready_s, end_s, blocking=_waits(one), group=one.group.name, peer=one.peer, splits=one.splits
    )  # fmt: skip


def _timed(own: Sequence[Call], begin_s: float) -> Step:
    """An iteration from the end of the one before to that of its own exchanges."""
    exchanges = []
    for one in own:
        ready = max(0.0, (one.start_s or 0.0) - begin_s)
        exchanges.append(_exchange(one, ready, max(ready, (one.end_s or 0.0) - begin_s)))
    return Step(max(one.end_s for one in exchanges), tuple(exchanges))


def untimed(own: Sequence[Call], computing: Duration | None) -> Step:
    """An iteration of exchanges without times, with ``computing`` in equal parts before each."""
    length_s = (computing or 0) / 1e9
    ready = [length_s * (place + 1) / len(own) for place in range(len(own))]
    return Step(ready[-1], tuple(_exchange(one, moment, moment) for one, moment in zip(own, ready, strict=True)))


def about_computing(computing: Duration | None) -> str:
    """The assumptions of `untimed`."""
    if computing is None:
        return "the record has no times: exchanges follow each other without computing. --iteration 50ms adds computing"
    return f"{computing} of computing per iteration was given by hand; it is spread evenly between the exchanges"


def _about_times(parts: Sequence[Sequence[Call]]) -> list[str]:
    kinds = {_waits(one) for own in parts for one in own if one.waits is None}
    said = []
    if True in kinds and False in kinds:
        said.append(
            "computing is taken to go on during all-reduces and reduce-scatters, and to stand still during other exchanges"
        )
    elif kinds:
        said.append(
            f"computing is taken to {'stand still' if True in kinds else 'go on'} during exchanges: the record has no computing"
        )
    if False in kinds:
        pairs = [(before.end_s or 0.0, one.start_s or 0.0) for own in parts for before, one in pairwise(own)]
        if queued := sum(1 for end, start in pairs if start - end < _PAUSE_S):
            said.append(
                f"{queued} of {len(pairs) + len(parts)} exchanges started as the one before ended, and may have waited for it: computing may be less than imported"
            )
    return said


def back_to_back(steps: Sequence[Step]) -> bool:
    """Whether they take no time but for their exchanges."""
    return not any(step.duration_s for step in steps)


def chosen(calls: Sequence[Call], wanted: str | None, path: Path) -> tuple[list[Call], list[Found]]:
    """Those of the process groups that `choose` chooses, in their order; peers of several communicators, which each count from 0, stay distinct."""
    _, found = choose(calls, wanted, path)
    groups = {one.group for one in found if one.chosen}
    calls = [one for one in calls if one.group in groups]
    if len({one.group for one in calls if one.peer}) < 2:
        return calls, found
    calls = [replace(one, peer=f"{one.peer} of {one.group.name}") if one.peer else one for one in calls]
    return calls, found

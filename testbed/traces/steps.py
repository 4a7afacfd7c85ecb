"""Training steps as a profiler sees them, and which of them are one iteration."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from statistics import median

from testbed.traces.operations import POINT_TO_POINT
from testbed.traces.trace import Kind, TraceError


@dataclass(frozen=True)
class Exchange:
    """One collective, send or receive of a step; times in seconds after the step's start.

    ``awaited_s``: when computing first pauses until it has ended, or continues with its result. ``blocking`` gives the same for
    ``ready_s``. Without either, only the last span of computing (the optimizer) waits for it, as in data-parallel training.
    """

    kind: Kind
    bytes: int
    ready_s: float
    end_s: float
    blocking: bool = False
    importance: tuple[float, ...] = ()  # of its packets; empty: not known
    awaited_s: float | None = None
    group: str = ""  # process group
    peer: str = ""  # of a send or receive: the other rank
    splits: tuple[int, ...] = ()  # of an uneven all-to-all: bytes for each rank of the group

    @property
    def needed_s(self) -> float | None:
        """When computing first waits for it; None: at the end."""
        return self.ready_s if self.blocking and self.awaited_s is None else self.awaited_s


@dataclass(frozen=True)
class Step:
    """One training step, with its exchanges in their order of execution.

    ``beside_s``: computing time concurrent with the last exchanges, from when the last one
    is ready until all have ended; the rest of that time is waiting.
    """

    duration_s: float
    exchanges: tuple[Exchange, ...]
    beside_s: float = 0.0
    name: str = ""  # in the profile: ProfilerStep#7
    remark: str = ""  # what else it does, if its length is unusual
    joined: int = 1  # how many steps of the profile it is


Connection = tuple[str, str, str]


def connection(one: Exchange) -> Connection:
    """The stream that runs exchanges one after the other: a process group, or messages one way between two ranks."""
    return (one.group, one.kind, one.peer) if one.kind in POINT_TO_POINT else (one.group, "", "")


def length(spans: Sequence[tuple[float, float]]) -> float:
    """How much time is in any of ``spans``."""
    total, until = 0.0, -math.inf
    for start, end in sorted(spans):
        total += max(0.0, end - max(start, until))
        until = max(until, end)
    return total


def settled(step: Step) -> tuple[Exchange, ...]:
    """The exchanges of a step, the last of which to end is waited for: at the latest the end of the step does."""
    if not step.exchanges:
        return ()
    end = max(one.end_s for one in step.exchanges)
    since = min(step.exchanges[-1].ready_s + step.beside_s, end)
    known = any(one.end_s == end and one.needed_s is not None for one in step.exchanges)
    return tuple(replace(one, awaited_s=since) if one.end_s == end and not known else one for one in step.exchanges)


def typical_s(ranks: Sequence[Sequence[Step]]) -> float:
    """How long an iteration took, as a median; raises `TraceError` if the steps have nothing to send."""
    return median(step.duration_s for own in alike_iterations(ranks)[0] for step in own)


def alike_iterations(ranks: Sequence[Sequence[Step]]) -> tuple[list[list[Step]], int]:
    """The iterations of each rank that exchange the same as most, and how many steps come after the last one of a rank."""
    whole, unfinished = _iterations(ranks)
    kinds = Counter(_signature(step) for own in whole for step in own)
    if not kinds:
        raise TraceError("no step exchanges anything: there is nothing to replay")
    most = kinds.most_common(1)[0][0]
    alike = [[step for step in own if _signature(step) == most] for own in whole]
    first = next(step for own in alike for step in own)
    return [[_in_order_of(first, step) for step in own] for own in alike], unfinished


def _iterations(ranks: Sequence[Sequence[Step]]) -> tuple[list[list[Step]], int]:
    """The iterations of each rank, and how many steps come after the last one of a rank.

    Where most steps with an exchange have some without before them, these are one iteration together. So are those of a pattern that recurs,
    as when models that are fully sharded accumulate gradients. Otherwise each is one.
    """
    periods = [_period(own) for own in ranks]
    if ranks and all(periods):
        recurring = [_recurring(own, period) for own, period in zip(ranks, periods, strict=True)]
        return [own for own, _ in recurring], sum(left for _, left in recurring)
    joined = [_joined(own) for own in ranks]
    parts = Counter(step.joined for own, _ in joined for step in own)
    if not parts or parts.most_common(1)[0][0] == 1:
        return [[step for step in own if step.exchanges] for own in ranks], 0
    return [own for own, _ in joined], sum(unfinished for _, unfinished in joined)


def _period(own: Sequence[Step]) -> int:
    """After how many steps, all of which exchange something, the same ones come again; 0: after one, or not twice."""
    marks = [_signature(step) for step in own]
    if len(set(marks)) < 2 or not all(step.exchanges for step in own):
        return 0
    periods = range(2, len(marks) // 2 + 1)
    return next(
        (period for period in periods if all(one == other for one, other in zip(marks, marks[period:], strict=False))),
        0,
    )


def _recurring(own: Sequence[Step], period: int) -> tuple[list[Step], int]:
    """The steps joined by so many, the last of which is the one that exchanges the most; and how many are left."""
    sizes = [sum(one.bytes for one in step.exchanges) for step in own[:period]]
    last = max(range(period), key=lambda place: sizes[place])
    first = (last + 1) % period
    starts = range(first, len(own) - period + 1, period)
    return [_one(own[start : start + period]) for start in starts], len(own) - period * len(starts)


def _joined(own: Sequence[Step]) -> tuple[list[Step], int]:
    """The steps, each with those before it that exchange nothing; and how many come after the last that exchanges something."""
    found: list[Step] = []
    before: list[Step] = []
    for step in own:
        before.append(step)
        if step.exchanges:
            found.append(_one(before))
            before = []
    return found, len(before)


def _one(parts: Sequence[Step]) -> Step:
    """Steps that follow each other, as one."""
    if len(parts) == 1:
        return parts[0]
    exchanges: list[Exchange] = []
    offset = 0.0
    for step in parts:
        own = step.exchanges if step is parts[-1] else settled(step)
        exchanges += [
            replace(
                one,
                ready_s=one.ready_s + offset,
                end_s=one.end_s + offset,
                awaited_s=None if one.needed_s is None else one.needed_s + offset,
            )
            for one in own
        ]
        offset += step.duration_s
    remark = next((step.remark for step in parts if step.remark), "")
    return replace(parts[-1], duration_s=offset, exchanges=tuple(exchanges), remark=remark, joined=len(parts))


def _by_connection(step: Step) -> dict[Connection, list[Exchange]]:
    found: dict[Connection, list[Exchange]] = {}
    for one in step.exchanges:
        found.setdefault(connection(one), []).append(one)
    return found


def _signature(step: Step) -> tuple[int, frozenset[tuple[Connection, tuple[Kind, ...]]]]:
    """The exchanges; groups that are free at once begin in any order."""
    found = _by_connection(step)
    return step.joined, frozenset((of, tuple(one.kind for one in own)) for of, own in found.items())


def _in_order_of(first: Step, step: Step) -> Step:
    """A step of the same signature, with its exchanges in the order of the first one's."""
    own = {of: iter(found) for of, found in _by_connection(step).items()}
    return replace(step, exchanges=tuple(next(own[connection(one)]) for one in first.exchanges))


def about_steps(used: Sequence[Step], there: int, unfinished: int) -> Iterator[str]:
    joined = used[0].joined
    if joined > 1:
        yield f"{joined} profiled steps are one iteration: gradients accumulate over them, and the last one exchanges them"
    if others := there - sum(step.joined for step in used) - unfinished:
        yield f"{others} of {there} steps exchanged something else and were left out"
    if unfinished:
        yield f"{unfinished} of {there} steps after the last exchange were left out"


def about_others(alike: Sequence[Sequence[Step]]) -> Iterator[str]:
    """Which files have no step that exchanges what most do."""
    for number, own in enumerate(alike, 1):
        if not own:
            yield f"warning: all steps of file {number} exchange something else than most of the others, and were left out: import it by itself"

"""Moments of a step by how much has been computed, and the operations of an iteration with such moments.

In each step, collectives become ready at some time and end at some later one, while computing goes on or waits for them. A moment counts by
how much has been computed by then: time without the waiting.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from testbed.core.units import Duration, Size
from testbed.traces.steps import Exchange, Step, length, settled
from testbed.traces.trace import Operation

_CLOSE_S = 20e-6  # moments of a long step that are this close are the same one


@dataclass(frozen=True)
class Moments:
    """How many seconds of a step have been computed when each exchange is ready, when it is waited for, and when all have ended."""

    ready: tuple[float, ...]
    needed: tuple[float | None, ...]
    ended: float
    all: float


def moments_of(step: Step) -> Moments:
    """The moments of one step."""
    last_end = max(one.end_s for one in step.exchanges)
    waits = [(one.needed_s, one.end_s) for one in settled(step) if one.needed_s is not None]

    def computed(moment: float) -> float:
        return moment - length([(start, min(end, moment)) for start, end in waits])

    ended = computed(last_end)
    return Moments(
        ready=tuple(computed(one.ready_s) for one in step.exchanges),
        needed=tuple(None if one.needed_s is None else computed(one.needed_s) for one in step.exchanges),
        ended=ended,
        all=ended + max(0.0, step.duration_s - last_end),
    )


def combined(moments: Sequence[Moments], of: Callable[[Iterable[float]], float]) -> Moments:
    """The median, or the latest, of several; an exchange is waited for before the end if it is so in more than half of them."""
    needed = []
    for column in zip(*(one.needed for one in moments), strict=True):
        known = [one for one in column if one is not None]
        needed.append(of(known) if 2 * len(known) > len(column) else None)
    return Moments(
        ready=tuple(map(of, zip(*(one.ready for one in moments), strict=True))),
        needed=tuple(needed),
        ended=of(one.ended for one in moments),
        all=of(one.all for one in moments),
    )


def operations_of(exchanges: Sequence[Exchange], moments: Moments, typical: Step) -> list[Operation]:
    """One iteration. ``typical`` is a step that decides the order where nothing is computed in between."""
    ready, needed = _snapped(moments)
    timeline = _Timeline(sorted({*ready, *(one for one in needed if one is not None)}))
    for index, (sent, begin, until) in enumerate(zip(exchanges, ready, needed, strict=True)):
        timeline.advance(begin, f"compute{index + 1}")
        timeline.wait(f"compute{index + 1}", {one for one in timeline.awaited if _held_up(typical, one, index)})
        before = timeline.computed_by(begin)
        exchange = Operation(
            id=f"{sent.kind}{index + 1}", kind=sent.kind, bytes=Size(sent.bytes), after=(before,) if before else (),
            importance=sent.importance or None, group=sent.group or None, splits=tuple(map(Size, sent.splits)) or None,
        )  # fmt: skip
        timeline.operations.append(exchange)
        if until is not None:
            timeline.awaited[index] = (max(until, timeline.now), exchange.id)
    timeline.advance(moments.ended, "beside")
    if rest := Duration(round((moments.all - moments.ended) * 1e9)):
        everything = tuple(op.id for op in timeline.operations if op.kind != "compute")
        timeline.operations.append(Operation(id="optimizer", kind="compute", duration=rest, after=everything))
    return timeline.operations


def _held_up(step: Step, one: int, other: int) -> bool:
    """Whether the exchange ``other`` became ready only after computing had waited for ``one``."""
    first, second = step.exchanges[one], step.exchanges[other]
    return first.needed_s is not None and first.needed_s < first.end_s <= second.ready_s + _close(step.duration_s)


def _close(length_s: float) -> float:
    """How close moments of a step of this length have to be to count as the same."""
    return min(_CLOSE_S, length_s / 1000)


def _snapped(moments: Moments) -> tuple[list[float], list[float | None]]:
    """When each exchange is ready and waited for; moments that are close to each other are the same. None: at the end."""
    close = _close(moments.all)
    marks: list[float] = []
    same: dict[float, float] = {}
    for one in sorted({*moments.ready, *(one for one in moments.needed if one is not None)}):
        if not marks or one - marks[-1] > close:
            marks.append(one)
        same[one] = marks[-1]
    ready = list(moments.ready)
    at_ready = {same[one]: one for one in sorted(ready, reverse=True)}
    needed = [
        None if one is None or one > moments.ended - close else at_ready.get(same[one], same[one])
        for one in moments.needed
    ]
    return ready, needed


@dataclass
class _Timeline:
    """The operations so far; ``now`` is how much of the iteration has been computed."""

    marks: list[float]  # where a span of computing ends and another begins
    operations: list[Operation] = field(default_factory=list)
    awaited: dict[int, tuple[float, str]] = field(default_factory=dict)  # exchanges: when computing waits for them
    now: float = 0.0
    spans: list[tuple[float, str]] = field(default_factory=list)  # where each ended
    names: Counter[str] = field(default_factory=Counter)

    def advance(self, to: float, name: str) -> None:
        """Compute up to ``to``, in spans that each wait for what is needed by then."""
        while self.now < to:
            first = bisect_right(self.marks, self.now)
            until = min(to, self.marks[first]) if first < len(self.marks) else to
            due = {one for one, (moment, _) in self.awaited.items() if moment <= self.now}
            self._compute(name, Duration(round((until - self.now) * 1e9)), due)
            self.now = until
            self._end()

    def wait(self, name: str, exchanges: set[int]) -> None:
        """Make operations that become ready now wait for these, if they have ended and are needed by now."""
        due = {one for one in exchanges if self.awaited[one][0] <= self.now}
        if due:
            self._compute(name, Duration(0), due)
            self._end()

    def computed_by(self, moment: float) -> str | None:
        """The span of computing that ends then."""
        at = bisect_right(self.spans, (moment, "\uffff"))
        return self.spans[at - 1][1] if at else None

    def _compute(self, name: str, length: Duration, due: set[int]) -> None:
        if not length and not due:
            return
        self.names[name] += 1
        own = name if self.names[name] == 1 else f"{name}.{self.names[name]}"
        after = tuple(self.awaited.pop(one)[1] for one in sorted(due))
        self.operations.append(Operation(id=own, kind="compute", duration=length, after=after))

    def _end(self) -> None:
        last = next((op.id for op in reversed(self.operations) if op.kind == "compute"), None)
        if last is not None:
            self.spans.append((self.now, last))

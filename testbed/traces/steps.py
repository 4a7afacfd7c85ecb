"""From measured training steps to a trace: what every importer and the recorder have in common.

A profiler sees steps. In each, collectives become ready at some time and end at some later one, while computing
goes on or waits for them. A moment of a step counts by how much has been computed by then: time without the waiting.
The trace keeps the median of that over the steps, for every moment at which a collective is ready or is waited for.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import fmean, median
from typing import Any, TypeVar

import msgspec

from testbed.core.text import decimal, quoted
from testbed.core.units import Duration, Rate, Size
from testbed.traces.operations import POINT_TO_POINT
from testbed.traces.process_groups import Group, Job, is_tensor_parallel, job_of
from testbed.traces.trace import Kind, Operation, Source, Trace, TraceError
from testbed.traces.wire_bytes import on_the_wire

_ALIKE = 0.01  # part of the mean by which ranks may differ without a word
_CLOSE_S = 20e-6  # moments of a long step that are this close are the same one
_NOISY = 0.2  # spread of the computing above which a step is named
_NORMAL = 1.4826  # standard deviation ÷ median absolute deviation, of a normal distribution
_OUTLIER = 5  # standard deviations from the median
_MOST_NAMED = 3
_STILL = 0.05  # part of the exchanges' time in which computing has to stand still for it to tell their rate
T = TypeVar("T")


@dataclass(frozen=True)
class Exchange:
    """One collective, send or receive of a step; times in seconds after the step's start.

    ``awaited_s``: when computing first stands still until it has ended, or goes on with its result. ``blocking`` says the same of
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
    """One training step, its exchanges in the order in which they were carried out.

    ``beside_s``: how much is computed beside the last exchanges, from when the last one
    is ready until all have ended; the rest of that time is waiting.
    """

    duration_s: float
    exchanges: tuple[Exchange, ...]
    beside_s: float = 0.0
    name: str = ""  # in the profile: ProfilerStep#7
    remark: str = ""  # what else it does, if its length is unusual
    joined: int = 1  # how many steps of the profile it is


@dataclass(frozen=True)
class Transfer:
    """How a part of an exchange went."""

    part: float
    seconds: float


@dataclass(frozen=True)
class Iteration:
    """The median of many steps."""

    exchanges: tuple[Exchange, ...]  # in the order of the operations that are no computing
    operations: tuple[Operation, ...]
    moments: Moments
    duration_s: float  # how long a step took
    transfers: tuple[tuple[Transfer, ...], ...]  # by step and exchange
    steps: int  # how many there are of them
    computing: tuple[tuple[float, ...], ...]  # seconds of each step, by rank
    said: tuple[str, ...]  # what is assumed


def iteration_of(ranks: Sequence[Sequence[Step]]) -> Iteration:
    """The median step of all ``ranks``, which are taken to do the same; raises `TraceError` if the steps have nothing to send.

    An exchange begins when its last rank is ready. So of ranks with equally many steps the one that computes longest counts, step by step.
    """
    alike, unfinished = _alike(ranks)
    used = [step for own in alike for step in own]
    moments = [[_moments(step) for step in own] for own in alike]
    computing = [[one.all for one in own] for own in moments if own]
    everywhere = [seconds for own in computing for seconds in own]
    typical = used[sorted(range(len(used)), key=everywhere.__getitem__)[len(used) // 2]]
    said = (*_about_steps(used, sum(map(len, ranks)), unfinished), *_about_others(alike))
    said = (*said, *_about_sizes(used), *_about_ranks(computing), *_about_noise(alike, computing))
    usual, middle = _usual(used), _combined([_combined(same, max) for same in _at_once(moments)], median)
    operations = tuple(_operations(usual, middle, typical))
    return Iteration(
        usual,
        operations,
        middle,
        median(step.duration_s for step in used),
        tuple(_transfers(same) for same in _at_once(alike)),
        len(used),
        tuple(map(tuple, computing)),
        said,
    )


def _at_once(ranks: Sequence[Sequence[T]]) -> list[tuple[T, ...]]:
    """The same step of all ranks together, if they have equally many; otherwise each step by itself."""
    if len({len(own) for own in ranks}) == 1:
        return list(zip(*ranks, strict=True))
    return [(one,) for own in ranks for one in own]


def trace_of(
    ranks: Sequence[Sequence[Step]],
    *,
    name: str,
    model: str,
    source: Source,
    native_rate: Rate | None,
    assumptions: tuple[str, ...] = (),
    groups: Sequence[Group] = (),
    rank: int | None = None,
    world: int = 0,
    workers: Mapping[str, int] | None = None,
) -> Trace:
    """The median step of all ``ranks`` as a trace; raises `TraceError` if the steps have nothing to send.

    ``source.measured_by`` gains of how many steps these are medians. A step without an exchange is a part of the next one with some (gradient
    accumulation). Steps that exchange something else than most do (the first of data-parallel training, whose buckets are not yet rebuilt) are
    left out, which the assumptions then say. Steps that differ in sizes alone are alike. ``groups`` are the process groups of the exchanges;
    with them, or with sends and receives, the trace is of all ranks (`testbed.traces.process_groups`). ``workers``: how many ranks they have,
    where there are no groups.
    """
    own = iteration_of(ranks)
    sent = [op.id for op in own.operations if not op.computes]
    peers = dict(zip(sent, (one.peer for one in own.exchanges), strict=True))
    job = job_of(own.operations, groups, world, rank, peers)
    if workers is None:
        workers = {group.name: group.workers for group in groups if len(groups) == 1 or not is_tensor_parallel(group)}
    return of_job(
        job,
        [own],
        name=name,
        model=model,
        source=source,
        native_rate=native_rate,
        workers=workers,
        assumptions=(*assumptions, *own.said),
    )


def of_job(
    job: Job,
    iterations: Sequence[Iteration],
    *,
    name: str,
    model: str,
    source: Source,
    native_rate: Rate | None,
    workers: Mapping[str, int],
    assumptions: tuple[str, ...],
) -> Trace:
    """The trace of a ``job`` whose ranks do these ``iterations``. Without a native rate, it is the one at which their exchanges went."""
    if native_rate is None:
        native_rate = measured_rate(iterations, workers)
        if native_rate is not None:
            assumptions = (
                f"native_rate is the one at which its exchanges went, {native_rate}: --native-rate was not given",
                *assumptions,
            )
    computing = [own for one in iterations for own in one.computing]
    medians = _medians(sum(one.steps for one in iterations), len(computing))
    return Trace(
        version=job.version,
        name=name,
        model=model,
        source=msgspec.structs.replace(source, measured_by=f"{source.measured_by}; {medians}"),
        operations=job.operations,
        groups=job.groups,
        roles=job.roles,
        placement=job.placement,
        native_rate=native_rate,
        assumptions=(*assumptions, *job.said),
        noise=f"{decimal(round(100 * spread(computing), 6), 3)}%",
    )


def typical_s(ranks: Sequence[Sequence[Step]]) -> float:
    """How long an iteration took, as a median; raises `TraceError` if the steps have nothing to send."""
    return median(step.duration_s for own in _alike(ranks)[0] for step in own)


def _alike(ranks: Sequence[Sequence[Step]]) -> tuple[list[list[Step]], int]:
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
        own = step.exchanges if step is parts[-1] else _settled(step)
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


def _settled(step: Step) -> tuple[Exchange, ...]:
    """The exchanges of a step, the last of which to end is waited for: at the latest the end of the step does."""
    if not step.exchanges:
        return ()
    end = max(one.end_s for one in step.exchanges)
    since = min(step.exchanges[-1].ready_s + step.beside_s, end)
    known = any(one.end_s == end and one.needed_s is not None for one in step.exchanges)
    return tuple(replace(one, awaited_s=since) if one.end_s == end and not known else one for one in step.exchanges)


Connection = tuple[str, str, str]


def connection(one: Exchange) -> Connection:
    """What carries out one exchange after the other: a process group, or messages one way between two ranks."""
    return (one.group, one.kind, one.peer) if one.kind in POINT_TO_POINT else (one.group, "", "")


def _by_connection(step: Step) -> dict[Connection, list[Exchange]]:
    found: dict[Connection, list[Exchange]] = {}
    for one in step.exchanges:
        found.setdefault(connection(one), []).append(one)
    return found


def _signature(step: Step) -> tuple[int, frozenset[tuple[Connection, tuple[Kind, ...]]]]:
    """What it exchanges; groups that are free at once begin in any order."""
    found = _by_connection(step)
    return step.joined, frozenset((of, tuple(one.kind for one in own)) for of, own in found.items())


def _in_order_of(first: Step, step: Step) -> Step:
    """A step of the same signature, with its exchanges in the order of the first one's."""
    own = {of: iter(found) for of, found in _by_connection(step).items()}
    return replace(step, exchanges=tuple(next(own[connection(one)]) for one in first.exchanges))


def _about_steps(used: Sequence[Step], there: int, unfinished: int) -> Iterator[str]:
    joined = used[0].joined
    if joined > 1:
        yield f"{joined} profiled steps are one iteration: gradients accumulate over them, and the last one exchanges them"
    if others := there - sum(step.joined for step in used) - unfinished:
        yield f"{others} of {there} steps exchanged something else and were left out"
    if unfinished:
        yield f"{unfinished} of {there} steps after the last exchange were left out"


def _about_others(alike: Sequence[Sequence[Step]]) -> Iterator[str]:
    """Which files have no step that exchanges what most do."""
    for number, own in enumerate(alike, 1):
        if not own:
            yield f"warning: all steps of file {number} exchange something else than most of the others, and were left out: import it by itself"


def _usual(alike: list[Step]) -> tuple[Exchange, ...]:
    """The exchanges that all of these steps have, each of the median size."""
    columns = zip(*(step.exchanges for step in alike), strict=True)
    return tuple(
        replace(
            column[0],
            **_median_size(column),
            importance=next((one.importance for one in column if one.importance), ()),
        )
        for column in columns
    )


def _median_size(column: Sequence[Exchange]) -> dict[str, Any]:
    sizes = int(median(one.bytes for one in column))
    if not all(len(one.splits) == len(column[0].splits) > 0 for one in column):
        return {"bytes": sizes, "splits": ()}
    splits = tuple(int(median(parts)) for parts in zip(*(one.splits for one in column), strict=True))
    return {"bytes": sum(splits), "splits": splits}


def _about_sizes(used: Sequence[Step]) -> Iterator[str]:
    """By how much sizes vary from step to step, of each kind."""
    varying: dict[Kind, list[float]] = {}
    for column in zip(*(step.exchanges for step in used), strict=True):
        sizes = [one.bytes for one in column]
        if min(sizes) < max(sizes):
            typical = median(sizes)
            varying.setdefault(column[0].kind, []).append(max(abs(size - typical) for size in sizes) / typical)
    for kind, parts in varying.items():
        yield (
            f"the size of {len(parts)} {kind} a step varies from step to step, by up to {decimal(100 * max(parts), 2)} %; "
            "the median is replayed"
        )


@dataclass(frozen=True)
class Moments:
    """How many seconds of a step have been computed when each exchange is ready, when it is waited for, and when all have ended."""

    ready: tuple[float, ...]
    needed: tuple[float | None, ...]
    ended: float
    all: float


def _moments(step: Step) -> Moments:
    last_end = max(one.end_s for one in step.exchanges)
    waits = [(one.needed_s, one.end_s) for one in _settled(step) if one.needed_s is not None]

    def computed(moment: float) -> float:
        return moment - length([(start, min(end, moment)) for start, end in waits])

    ended = computed(last_end)
    return Moments(
        ready=tuple(computed(one.ready_s) for one in step.exchanges),
        needed=tuple(None if one.needed_s is None else computed(one.needed_s) for one in step.exchanges),
        ended=ended,
        all=ended + max(0.0, step.duration_s - last_end),
    )


def _combined(moments: Sequence[Moments], of: Callable[[Iterable[float]], float]) -> Moments:
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


def _transfers(ranks: Sequence[Step]) -> tuple[Transfer, ...]:
    """How the exchanges of a step went once all of these ranks were ready, by the clock of the last one."""
    return min(map(_transfers_of, ranks), key=lambda own: sum(one.seconds for one in own))


def _transfers_of(step: Step) -> tuple[Transfer, ...]:
    """While computing stands still; as a whole where it hardly ever does. Beside a transfer, what computes on CPUs takes them from it."""
    free: dict[Connection, float] = {}
    spans = []
    for one in step.exchanges:  # from when it is ready, and the one before it on its connection has ended
        own = connection(one)
        start = min(one.end_s, max(one.ready_s, free.get(own, 0.0)))
        spans.append((start, one.end_s))
        free[own] = max(one.end_s, free.get(own, 0.0))
    waits = [(one.needed_s, one.end_s) for one in _settled(step) if one.needed_s is not None]
    still = [length([(max(a, start), min(b, end)) for a, b in waits if a < end and b > start]) for start, end in spans]
    whole = [end - start for start, end in spans]
    if sum(still) < _STILL * sum(whole):
        return tuple(Transfer(1.0, seconds) for seconds in whole)
    return tuple(Transfer(own / all if all else 0.0, own) for own, all in zip(still, whole, strict=True))


def measured_rate(iterations: Sequence[Iteration], workers: Mapping[str, int]) -> Rate | None:
    """The rate at which the exchanges of these process groups went; of several roles the one that waits the least for others tells.

    None if no time is known. ``workers`` are how many ranks a group has.
    """
    rate = max((_rate_bps(one, workers) for one in iterations), default=0.0)
    return Rate(int(float(f"{rate:.3g}"))) if 1 <= rate <= Rate.limit else None


def _rate_bps(iteration: Iteration, workers: Mapping[str, int]) -> float:
    found = []
    sizes = [
        max(on_the_wire(one.kind, one.bytes, ranks)) if (ranks := workers.get(one.group, 0)) > 1 else 0
        for one in iteration.exchanges
    ]
    for step in iteration.transfers:
        seconds = sum(one.seconds for one, size in zip(step, sizes, strict=True) if size)
        if seconds > 0:
            found.append(8 * sum(one.part * size for one, size in zip(step, sizes, strict=True)) / seconds)
    return median(found) if found else 0.0


def length(spans: Sequence[tuple[float, float]]) -> float:
    """How much time is in any of ``spans``."""
    total, until = 0.0, -math.inf
    for start, end in sorted(spans):
        total += max(0.0, end - max(start, until))
        until = max(until, end)
    return total


def _operations(exchanges: Sequence[Exchange], moments: Moments, typical: Step) -> list[Operation]:
    """One iteration. ``typical`` is a step that tells what came first where nothing is computed in between."""
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
        """What becomes ready now does so after these have ended, if they are needed by now."""
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


def _medians(steps: int, ranks: int) -> str:
    return f"medians of {steps} step{'s' * (steps != 1)}" + (f" of {ranks} ranks" if ranks > 1 else "")


def spread(computing: Sequence[Sequence[float]]) -> float:
    """Standard deviation of an iteration's computing from one step of a rank to the next, as a part of the median.

    Steps far from the median of their rank do not count, so a single odd one cannot make it. What one rank differs from another by is no
    spread over iterations. Below two degrees of freedom it is unknown, so 0. It is 1 at most, the limit of `testbed.traces.noise`.
    """
    typical = median(one for own in computing for one in own)
    if sum(len(own) - 1 for own in computing) < 2 or typical <= 0:
        return 0.0
    far = _far(computing)
    usual = [[one for one in own if abs(one - median(own)) <= far] for own in computing]
    freedom = max(1, sum(len(own) - 1 for own in usual if own))
    squares = sum((one - fmean(own)) ** 2 for own in usual for one in own)
    return min(1.0, math.sqrt(squares / freedom) / typical)


def _far(computing: Sequence[Sequence[float]]) -> float:
    """By how much a step's computing has to differ from the median of its rank to be an odd one."""
    away = median(abs(one - median(own)) for own in computing for one in own)
    return max(_OUTLIER * _NORMAL * away, _ALIKE * median(one for own in computing for one in own))


def _about_noise(alike: Sequence[Sequence[Step]], computing: Sequence[Sequence[float]]) -> Iterator[str]:
    """Which steps are unlike the others, and what they did."""
    part = spread(computing)
    typical = median(one for own in computing for one in own)
    far = []
    for steps, own in zip((own for own in alike if own), computing, strict=True):
        middle = median(own)
        far += [(abs(one - middle), one, step) for one, step in zip(own, steps, strict=True)]
    far.sort(key=lambda one: one[0], reverse=True)
    limit = max(_far(computing), _NOISY * typical)
    odd = [(seconds, step) for away, seconds, step in far if away > limit] if len(far) > 2 else []
    for seconds, step in odd[:_MOST_NAMED]:
        yield (
            f"{step.name or 'one step'} computes {decimal(seconds * 1e3)} ms and the median step {decimal(typical * 1e3)} ms"
            + (
                f"; it holds {quoted(step.remark)}, which the replay leaves out"
                if step.remark
                else "; the replay leaves that out"
            )
        )
    if len(odd) > _MOST_NAMED:
        yield f"{len(odd) - _MOST_NAMED} more steps are as far from the median"
    if part > _NOISY:
        _, seconds, step = far[0]
        yield (
            f"warning: the computing varies by {decimal(100 * part, 3)} % from step to step, most in "
            f"{step.name or 'one step'} ({decimal(seconds * 1e3)} ms, median {decimal(typical * 1e3)} ms)"
        )


def _about_ranks(computing: Sequence[Sequence[float]]) -> list[str]:
    """What one rank of several computes for all of them."""
    means = [fmean(own) for own in computing]
    if len(means) < 2 or max(means) - min(means) <= _ALIKE * fmean(means):
        return []
    return [
        f"its {len(means)} ranks compute for {decimal(min(means) * 1e3)} to {decimal(max(means) * 1e3)} ms a step on average; here "
        f"all workers do so for the median, and the noise is that from step to step alone"
    ]

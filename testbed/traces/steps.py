"""From measured training steps to a trace: what every importer and the recorder have in common.

A profiler sees steps; in each, collectives become ready at some time and end at some
later one, while computing goes on beside them or waits for them. The trace keeps, for
every point of the step, the median over the steps of what has been computed by then, and
the spread of the whole as noise.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise
from statistics import fmean, median

import msgspec

from testbed.core.text import decimal
from testbed.core.units import Duration, Rate, Size
from testbed.traces.trace import VERSION, Kind, Operation, Source, Trace, TraceError

_ALIKE = 0.01  # part of the mean by which ranks may differ without a word


@dataclass(frozen=True)
class Exchange:
    """One collective of a step; times in seconds after the step's start.

    ``blocking``: what is computed next waits for its end. Otherwise only the last span
    of computing (the optimizer) does, as in data-parallel training.
    """

    kind: Kind
    bytes: int
    ready_s: float
    end_s: float
    blocking: bool = False
    importance: tuple[float, ...] = ()  # of its packets; empty: not known


@dataclass(frozen=True)
class Step:
    """One training step, its exchanges in the order in which they were carried out.

    ``beside_s``: how much is computed beside the last exchanges, from when the last one
    is ready until all have ended; the rest of that time is waiting.
    """

    duration_s: float
    exchanges: tuple[Exchange, ...]
    beside_s: float = 0.0


def trace_of(
    ranks: Sequence[Sequence[Step]],
    *,
    name: str,
    model: str,
    source: Source,
    native_rate: Rate | None,
    assumptions: tuple[str, ...] = (),
) -> Trace:
    """The median step of all ``ranks`` as a trace; raises `TraceError` if the steps have nothing to send.

    ``source.measured_by`` gains of how many steps these are medians. Steps that exchange something else than most do (the first of data-parallel training,
    whose buckets are not yet rebuilt) are left out, which the assumptions then say.
    """
    kinds = Counter(_signature(step) for own in ranks for step in own if step.exchanges)
    if not kinds:
        raise TraceError("no step exchanges anything: there is nothing to replay")
    usual = kinds.most_common(1)[0][0]
    alike = [[step for step in own if _signature(step) == usual] for own in ranks]
    used, there = sum(map(len, alike)), sum(map(len, ranks))
    if used < there:
        assumptions = (*assumptions, f"{there - used} of {there} steps exchanged something else and were left out")
    exchanges = _usual([step for own in alike for step in own])
    spans = [_spans(step, exchanges) for own in alike for step in own]
    computing = [[sum(_spans(step, exchanges)) for step in own] for own in alike if own]
    assumptions = (*assumptions, *_about_ranks(computing))
    # medians of how much has been computed by then: their differences add up to the median step, medians of spans do not
    by_then = [0.0, *(median(column) for column in zip(*(accumulate(one) for one in spans), strict=True))]
    lengths = [after - before for before, after in pairwise(by_then)]
    return Trace(
        version=VERSION,
        name=name,
        model=model,
        source=msgspec.structs.replace(source, measured_by=f"{source.measured_by}; {_medians(used, len(computing))}"),
        operations=tuple(_operations(exchanges, lengths)),
        native_rate=native_rate,
        assumptions=assumptions,
        noise=_spread(computing),
    )


def _signature(step: Step) -> tuple[tuple[Kind, int], ...]:
    return tuple((one.kind, one.bytes) for one in step.exchanges)


def _usual(alike: list[Step]) -> tuple[Exchange, ...]:
    """The exchanges that all of these steps have; each blocks if it does in more than half of them."""
    columns = zip(*(step.exchanges for step in alike), strict=True)
    return tuple(
        replace(
            column[0],
            blocking=sum(one.blocking for one in column) * 2 > len(column),
            importance=next((one.importance for one in column if one.importance), ()),
        )
        for column in columns
    )


def _spans(step: Step, usual: tuple[Exchange, ...]) -> list[float]:
    """Seconds of computing before each exchange is ready, beside the last ones, and after all of them."""
    spans: list[float] = []
    free = 0.0
    for one, typical in zip(step.exchanges, usual, strict=True):
        spans.append(max(0.0, one.ready_s - free))
        free = max(free, one.end_s if typical.blocking else one.ready_s)
    return [*spans, step.beside_s, max(0.0, step.duration_s - max(one.end_s for one in step.exchanges))]


def _operations(exchanges: tuple[Exchange, ...], lengths: list[float]) -> list[Operation]:
    operations: list[Operation] = []
    awaited: list[str] = []  # what the next span of computing waits for
    computed: str | None = None
    for number, (sent, length_s) in enumerate(zip(exchanges, lengths[:-2], strict=True), 1):
        length = Duration(round(length_s * 1e9))
        if length or awaited:
            computed = f"compute{number}"
            operations.append(Operation(id=computed, kind="compute", duration=length, after=tuple(awaited)))
            awaited = []
        exchange = Operation(
            id=f"{sent.kind}{number}", kind=sent.kind, bytes=Size(sent.bytes), after=(computed,) if computed else (),
            importance=sent.importance or None,
        )  # fmt: skip
        operations.append(exchange)
        if sent.blocking:
            awaited = [exchange.id]
    everything = tuple(op.id for op in operations if op.kind != "compute")
    beside, rest = (Duration(round(length_s * 1e9)) for length_s in lengths[-2:])
    if beside:
        operations.append(Operation(id="beside", kind="compute", duration=beside, after=tuple(awaited)))
    if rest:
        operations.append(Operation(id="optimizer", kind="compute", duration=rest, after=everything))
    return operations


def _medians(steps: int, ranks: int) -> str:
    return f"medians of {steps} step{'s' * (steps != 1)}" + (f" of {ranks} ranks" if ranks > 1 else "")


def _spread(computing: Sequence[Sequence[float]]) -> str:
    """Standard deviation of an iteration's computing ÷ its mean, in percent, from one step of a rank to the next.

    What one rank differs from another by is no spread over iterations, so each rank's deviations are from its own
    mean. Below two degrees of freedom unknown, so 0. At most 100 %: beyond, which a few short steps and one pause
    can give, it is no spread to replay.
    """
    freedom = sum(len(own) - 1 for own in computing)
    mean = fmean(one for own in computing for one in own)
    if freedom < 2 or not mean:
        return "0%"
    squares = sum((one - fmean(own)) ** 2 for own in computing for one in own)
    return f"{decimal(min(100, round(100 * math.sqrt(squares / freedom) / mean, 6)), 3)}%"


def _about_ranks(computing: Sequence[Sequence[float]]) -> list[str]:
    """What one rank of several computes for all of them."""
    means = [fmean(own) for own in computing]
    if len(means) < 2 or max(means) - min(means) <= _ALIKE * fmean(means):
        return []
    return [
        f"its {len(means)} ranks compute for {decimal(min(means) * 1e3)} to {decimal(max(means) * 1e3)} ms a step on average; here "
        f"all workers do so for the median, and the noise is that from step to step alone"
    ]

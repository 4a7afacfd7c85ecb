"""From measured training steps to a trace: what every importer and the recorder have in common.

A profiler sees steps; in each, collectives become ready at some time and end at some
later one, while computing goes on beside them or waits for them. The trace keeps the
median over the steps of every span of computing, and the spread of their sum as noise.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from statistics import fmean, median, stdev

from workloads.trace import VERSION, Kind, Operation, Source, Trace, TraceError
from workloads.units import Duration, Rate, Size


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


@dataclass(frozen=True)
class Step:
    """One training step, its exchanges in the order in which they were carried out."""

    duration_s: float
    exchanges: tuple[Exchange, ...]


def trace_of(
    steps: list[Step],
    *,
    name: str,
    model: str,
    source: Source,
    native_rate: Rate | None,
    assumptions: tuple[str, ...] = (),
) -> Trace:
    """The median step as a trace; raises `TraceError` if the steps have nothing to send.

    Steps that exchange something else than most do (the first of data-parallel training,
    whose buckets are not yet rebuilt) are left out, which the assumptions then say.
    """
    kinds = Counter(_signature(step) for step in steps if step.exchanges)
    if not kinds:
        raise TraceError("no step exchanges anything: there is nothing to replay")
    usual = kinds.most_common(1)[0][0]
    alike = [step for step in steps if _signature(step) == usual]
    if odd := len(steps) - len(alike):
        assumptions = (*assumptions, f"{odd} of {len(steps)} steps exchanged something else and were left out")
    spans = [_spans(step) for step in alike]
    lengths = [median(column) for column in zip(*spans, strict=True)]
    return Trace(
        version=VERSION,
        name=name,
        model=model,
        source=source,
        operations=tuple(_operations(alike[0].exchanges, lengths)),
        native_rate=native_rate,
        assumptions=assumptions,
        noise=_spread([sum(one) for one in spans]),
    )


def _signature(step: Step) -> tuple[tuple[Kind, int, bool], ...]:
    return tuple((one.kind, one.bytes, one.blocking) for one in step.exchanges)


def _spans(step: Step) -> list[float]:
    """Seconds of computing before each exchange is ready, and after the last one."""
    spans: list[float] = []
    free = 0.0
    for one in step.exchanges:
        spans.append(max(0.0, one.ready_s - free))
        free = max(free, one.end_s if one.blocking else one.ready_s)
    return [*spans, max(0.0, step.duration_s - max(one.end_s for one in step.exchanges))]


def _operations(exchanges: tuple[Exchange, ...], lengths: list[float]) -> list[Operation]:
    operations: list[Operation] = []
    awaited: list[str] = []  # what the next span of computing waits for
    computed: str | None = None
    for number, (one, length_s) in enumerate(zip(exchanges, lengths[:-1], strict=True), 1):
        length = Duration(round(length_s * 1e9))
        if length or awaited:
            computed = f"compute{number}"
            operations.append(Operation(id=computed, kind="compute", duration=length, after=tuple(awaited)))
            awaited = []
        exchange = Operation(
            id=f"{one.kind}{number}", kind=one.kind, bytes=Size(one.bytes), after=(computed,) if computed else ()
        )
        operations.append(exchange)
        if one.blocking:
            awaited = [exchange.id]
    everything = tuple(op.id for op in operations if op.kind != "compute")
    rest = Duration(round(lengths[-1] * 1e9))
    if rest:
        operations.append(Operation(id="optimizer", kind="compute", duration=rest, after=everything))
    return operations


def _spread(computing: list[float]) -> str:
    """Standard deviation of an iteration's computing ÷ its mean, in percent; below three steps unknown, so 0.

    At most 100 %: beyond, which a few short steps and one pause can give, it is no spread to replay.
    """
    if len(computing) < 3 or not fmean(computing):
        return "0%"
    return f"{min(100, 100 * stdev(computing) / fmean(computing)):.3g}%"

"""From measured training steps to a trace: what every importer and the recorder have in common.

The trace keeps the median over the steps of every moment at which a collective is ready or is waited for (`testbed.traces.moments`).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean, median
from typing import Any, TypeVar

import msgspec

from testbed.core.text import decimal, quoted
from testbed.core.units import Rate
from testbed.traces.moments import Moments, combined, moments_of, operations_of
from testbed.traces.process_groups import Group, Job, is_tensor_parallel, job_of
from testbed.traces.steps import (
    Connection,
    Exchange,
    Step,
    about_others,
    about_steps,
    alike_iterations,
    connection,
    length,
    settled,
)
from testbed.traces.trace import Kind, Operation, Source, Trace
from testbed.traces.wire_bytes import on_the_wire

MEASURED_RATE = "native_rate is the one at which its exchanges went"

_ALIKE = 0.01  # part of the mean by which ranks may differ without a word
_NOISY = 0.2  # spread of the computing above which a step is named
_FELT = 0.01  # part of a step below which a spread of its computing changes nothing
_NORMAL = 1.4826  # standard deviation ÷ median absolute deviation, of a normal distribution
_OUTLIER = 5  # standard deviations from the median
_MOST_NAMED = 3
_STILL = 0.05  # part of the exchanges' time with computing paused, from which their rate can be taken
T = TypeVar("T")


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
    alike, unfinished = alike_iterations(ranks)
    used = [step for own in alike for step in own]
    moments = [[moments_of(step) for step in own] for own in alike]
    computing = [[one.all for one in own] for own in moments if own]
    everywhere = [seconds for own in computing for seconds in own]
    typical = used[sorted(range(len(used)), key=everywhere.__getitem__)[len(used) // 2]]
    said = (*about_steps(used, sum(map(len, ranks)), unfinished), *about_others(alike))
    said = (*said, *_about_sizes(used), *_about_ranks(computing), *_about_noise(alike, computing))
    usual, middle = _usual(used), combined([combined(same, max) for same in _at_once(moments)], median)
    operations = tuple(operations_of(usual, middle, typical))
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
    """The same step of all ranks together, if they have equally many; otherwise each step separately."""
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
    accumulation). Steps whose exchanges differ from most (the first of data-parallel training, whose buckets are not yet rebuilt) are
    left out, and the assumptions list them. Steps that differ only in sizes count as equal. ``groups`` are the process groups of the exchanges;
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
    """The trace of a ``job`` whose ranks do these ``iterations``. The default native rate is the rate of their exchanges."""
    if native_rate is None:
        native_rate = measured_rate(iterations, workers)
        if native_rate is not None:
            assumptions = (
                f"{MEASURED_RATE}, {native_rate}: --native-rate was not given",
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


def _transfers(ranks: Sequence[Step]) -> tuple[Transfer, ...]:
    """How the exchanges of a step went once all of these ranks were ready, by the clock of the last one."""
    return min(map(_transfers_of, ranks), key=lambda own: sum(one.seconds for one in own))


def _transfers_of(step: Step) -> tuple[Transfer, ...]:
    """Transfers while computing is paused, or complete ones if it hardly ever is. Computing on CPUs during a transfer takes CPUs from it."""
    free: dict[Connection, float] = {}
    spans = []
    for one in step.exchanges:  # from when it is ready, and the one before it on its connection has ended
        own = connection(one)
        start = min(one.end_s, max(one.ready_s, free.get(own, 0.0)))
        spans.append((start, one.end_s))
        free[own] = max(one.end_s, free.get(own, 0.0))
    waits = [(one.needed_s, one.end_s) for one in settled(step) if one.needed_s is not None]
    still = [length([(max(a, start), min(b, end)) for a, b in waits if a < end and b > start]) for start, end in spans]
    whole = [end - start for start, end in spans]
    if sum(still) < _STILL * sum(whole):
        return tuple(Transfer(1.0, seconds) for seconds in whole)
    return tuple(Transfer(own / all if all else 0.0, own) for own, all in zip(still, whole, strict=True))


def measured_rate(iterations: Sequence[Iteration], workers: Mapping[str, int]) -> Rate | None:
    """The rate of the exchanges of these process groups; of several roles the one that waits the least for others gives it.

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
    felt = _FELT * median(step.duration_s for own in alike for step in own)
    limit = max(_far(computing), _NOISY * typical, felt)
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
    if part > _NOISY and part * typical > felt:
        _, seconds, step = far[0]
        yield (
            f"warning: the computing varies by {decimal(100 * part, 3)} % from step to step, most in "
            f"{step.name or 'one step'} ({decimal(seconds * 1e3)} ms, median {decimal(typical * 1e3)} ms)"
        )


def _about_ranks(computing: Sequence[Sequence[float]]) -> list[str]:
    """The assumption that all ranks compute for the median time, if their means differ."""
    means = [fmean(own) for own in computing]
    if len(means) < 2 or max(means) - min(means) <= _ALIKE * fmean(means):
        return []
    return [
        f"its {len(means)} ranks compute for {decimal(min(means) * 1e3)} to {decimal(max(means) * 1e3)} ms a step on average; here "
        f"all workers do so for the median, and the noise is that from step to step alone"
    ]

"""The table at the end of an import: groups, bytes, times, and assumptions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace

from testbed.core.text import count, decimal, quoted, shown
from testbed.core.units import Duration, Rate, Size
from testbed.traces.devices import device
from testbed.traces.importing import Imported
from testbed.traces.median_iteration import MEASURED_RATE
from testbed.traces.operations import Operation, Role
from testbed.traces.steps import length
from testbed.traces.trace import Trace
from testbed.traces.wire_bytes import on_the_wire

INDENT = " " * 12  # of the text of a row
_SEVERAL = 2  # ranks of a group where it is not known how many it has
_EXAMPLE = "h100"  # device for which the times of work are given
_FASTER = 4  # factor between the rates at which the duty is given


@dataclass(frozen=True)
class Timing:
    """One iteration of one rank in isolation."""

    period_s: float
    communicating_s: float  # in which something is on the wire

    @property
    def duty(self) -> float:
        return self.communicating_s / self.period_s if self.period_s else 0.0


def lines(imported: Imported) -> Iterator[str]:
    """The table, a line each."""
    trace = imported.trace
    role = profiled(imported)
    operations: Sequence[Operation] = role.operations
    sizes = group_sizes(trace, imported.rank if imported.rank in role.ranks else next(iter(role.ranks), 0))
    yield from _groups(imported)
    yield row(
        "ranks", "any number: the profile does not say how many there are" if trace.ranks is None else str(trace.ranks)
    )
    exchanges = [op for op in operations if not op.computes]
    yield row("tensors", f"{Size(sum(op.size for op in exchanges))} in {count(len(exchanges), 'exchange')}")
    for whose, own in _by_connection(operations).items():
        yield row(
            "bytes", f"{whose}{exchanged(own, sizes)}" + ("" if trace.ranks else f", if there are {_SEVERAL} ranks")
        )
    compute_s = sum((op.duration or 0) for op in operations) / 1e9
    work = [op for op in operations if op.by_work]
    computes = [f"{duration(compute_s)} per iteration"] if compute_s or not work else []
    yield row("compute", " and ".join([*computes, *([_work(work)] if work else [])]))
    if work:
        operations = profiled(replace(imported, trace=trace.timed(device(_EXAMPLE, None, None, None)))).operations
    native = trace.native_rate or Rate(10**10)
    inside = trace.placement.inside if trace.placement else ()
    timings = {rate: timing(operations, sizes, rate, inside) for rate in (native // _FASTER, native, native * _FASTER)}
    profile = f"{duration(imported.step_s)} in the profile" if imported.step_s else "the files have no times"
    on = f" on {_EXAMPLE}, as an example" if work else ""
    yield row("period", f"{duration(timings[native].period_s)} at {native}{on}; {profile}")
    yield row("duty", ", ".join(f"{100 * one.duty:.0f} % at {Rate(rate)}" for rate, one in timings.items()) + on)
    yield row("noise", trace.noise.replace("%", " %"))
    if inside:
        yield row("assumed", "period and duty: each rank has a NIC, and exchanges inside a server take no time")
    for each in trace.assumptions:
        left_out = "left out" in each
        yield row(
            "warning"
            if each.startswith("warning: ")
            else "left out"
            if left_out
            else "measured"
            if each.startswith(MEASURED_RATE)
            else "assumed",
            each.removeprefix("warning: "),
        )


def row(name: str, text: str) -> str:
    """A line of the table."""
    return f"  {name:<9} {text}"


def duration(seconds: float) -> Duration:
    return Duration(round(seconds * 1e9))


def _work(operations: Sequence[Operation]) -> str:
    flops = sum(op.flops or 0 for op in operations)
    memory = Size(sum(op.memory_bytes or 0 for op in operations))
    return f"{decimal(flops / 1e12, 4)} TFLOP and {memory} of memory per iteration (--device turns work into time)"


def _groups(imported: Imported) -> Iterator[str]:
    for one in imported.groups:
        group = one.group
        what = ", ".join(f"{count} {kind}" for kind, count in one.kinds)
        parts = [quoted(group.name) if group.name else "(without a name)"]
        if group.description:
            parts.append(f"({shown(group.description)})")
        ranks = f"ranks {group.workers}" if group.workers else "ranks unknown"
        if group.ranks:
            ranks += f" [{_listed(group.ranks)}]"
        yield row(
            "group",
            f"{' '.join(parts)}: {ranks}, {Size(one.bytes)} in all steps ({what}), {'chosen' if one.chosen else 'left out'}",
        )


def _listed(ranks: Sequence[int], most: int = 8) -> str:
    return ", ".join(map(str, ranks[:most])) + (", …" if len(ranks) > most else "")


def _by_connection(operations: Sequence[Operation]) -> dict[str, list[Operation]]:
    """The exchanged bytes, by process group or neighbour; without a name if there is only one."""
    found: dict[str, list[Operation]] = {}
    for op in operations:
        if not op.computes:
            found.setdefault(
                f"neighbour {op.peer}: " if op.point_to_point else f"group {quoted(op.group or '')}: ", []
            ).append(op)
    return found if len(found) > 1 else dict(zip([""], found.values(), strict=False))


def profiled(imported: Imported) -> Role:
    """The role of the rank that the profile is of."""
    roles = imported.trace.all_roles
    profiled = [role for role in roles if role.name == "profiled"]
    own = [role for role in roles if imported.rank in role.ranks]
    return (*profiled, *own, roles[0])[0]


def group_sizes(trace: Trace, rank: int) -> dict[str | None, int]:
    """How many ranks each group has where ``rank`` is in it; None: the only group. A group without this rank counts with its first list."""
    sizes: dict[str | None, int] = {
        name: len(next((one for one in lists if rank in one), lists[0])) for name, lists in trace.groups.items()
    }
    return {**sizes, None: next(iter(sizes.values()), trace.ranks or _SEVERAL)}


def exchanged(operations: Sequence[Operation], sizes: dict[str | None, int]) -> str:
    """The bytes that a rank sends and receives in exchanges, and the number of each kind."""
    each = [on_the_wire(op.kind, op.size, sizes.get(op.group, _SEVERAL)) for op in operations]
    sent, received = (Size(sum(column)) for column in zip(*each, strict=True))
    kinds = Counter(op.kind for op in operations)
    counted = ", ".join(f"{count} {kind}" for kind, count in kinds.items())
    return f"{sent} out, {received} in per iteration and rank ({counted})"


@dataclass
class _Streams:
    """When each is free."""

    free: dict[str, float] = field(default_factory=dict)

    def carry(self, stream: str, ready: float, seconds: float) -> tuple[float, float]:
        start = max(ready, self.free.get(stream, 0.0))
        self.free[stream] = start + seconds
        return start, start + seconds


def timing(
    operations: Sequence[Operation], sizes: dict[str | None, int], rate_bps: float, inside: Collection[str] = ()
) -> Timing:
    """One iteration in isolation: computes one after the other, each group's collectives too, everything else side by side.

    Exchanges of the groups ``inside`` a server take no time, as in a run without ``--intra-server-rate``.
    """
    streams = _Streams()
    ends: dict[str, float] = {}
    busy: list[tuple[float, float]] = []
    for op in operations:
        ready = max((ends.get(name, 0.0) for name in op.after), default=0.0)
        if op.computes:
            _, ends[op.id] = streams.carry("", ready, (op.duration or 0) / 1e9)
            continue
        size = 0 if op.group in inside else max(on_the_wire(op.kind, op.size, sizes.get(op.group, _SEVERAL)))
        seconds = size * 8 / rate_bps
        stream = f"{op.kind} {op.peer}" if op.point_to_point else f"group {op.group}"
        span = streams.carry(stream, ready, seconds)
        ends[op.id] = span[1]
        busy.append(span)
    return Timing(max(ends.values(), default=0.0), length(busy))

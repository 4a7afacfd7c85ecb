"""What an import of a model tells at its end: groups, bytes of a rank, work, times at three rates, what was assumed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from testbed.core.text import decimal
from testbed.core.units import Duration, Rate, Size
from testbed.traces import import_table, matching
from testbed.traces.operations import Operation, Role
from testbed.traces.trace import Trace
from testbed.traces.wire_bytes import on_the_wire

RATES = (Rate(50 * 10**9), Rate(100 * 10**9), Rate(400 * 10**9))


def lines(trace: Trace) -> Iterator[str]:
    """The table, a line each."""
    inside = trace.placement.inside if trace.placement else ()
    yield _row("model", trace.model)
    for name, lists in trace.groups.items():
        where = "inside a server" if name in inside else "over the network"
        yield _row("group", f"{name}: {len(lists)} × {len(lists[0])} ranks, {where}")
    roles = trace.all_roles
    yield _row("ranks", f"{trace.ranks} in {len(roles)} stages" if trace.roles else str(trace.ranks))
    sizes = import_table.group_sizes(trace)
    for where, role in _ends(roles):
        for group in dict.fromkeys(op.group for op in role.operations if not op.computes):
            yield _row("bytes", f"{where}{group}: {_bytes([op for op in role.operations if op.group == group], sizes)}")
    flops = max(sum(op.flops or 0.0 for op in role.operations) for role in roles)
    yield _row("work", f"{decimal(flops / 1e12)} TFLOP per iteration and rank")
    if trace.device is None:
        yield _row("times", "depend on the device: give --device here, or to a run")
    else:
        yield from _times(trace.timed(None), sizes, inside)
    for each in trace.assumptions:
        left_out = each.startswith("left out: ")
        yield _row("left out" if left_out else "assumed", each.removeprefix("left out: "))


def _row(name: str, text: str) -> str:
    return f"  {name:<9} {text}"


def _ends(roles: Sequence[Role]) -> list[tuple[str, Role]]:
    """The first stage and the last one; the only one without a name."""
    return [("", roles[0])] if len(roles) == 1 else [(f"{role.name}, ", role) for role in (roles[0], roles[-1])]


def _bytes(operations: Sequence[Operation], sizes: dict[str | None, int]) -> str:
    each = [on_the_wire(op.kind, op.size, sizes[op.group]) for op in operations]
    kinds = Counter(op.kind for op in operations)
    counted = ", ".join(f"{count} {kind}" for kind, count in kinds.items())
    return f"{Size(sum(sent for sent, _ in each))} out, {Size(sum(received for _, received in each))} in per iteration and rank ({counted})"


def _times(trace: Trace, sizes: dict[str | None, int], inside: Sequence[str]) -> Iterator[str]:
    assert trace.device is not None
    compute_s = max(sum(op.duration or 0 for op in role.operations) / 1e9 for role in trace.all_roles)
    yield _row("compute", f"{_time(compute_s)} per iteration and rank on {trace.device.device()}")
    matched = trace.matched
    largest = [
        0 if one.group in inside else max(on_the_wire(one.first.kind, one.first.size, sizes[one.group]))
        for one in matched.exchanges
    ]
    periods, duties = [], []
    for rate in RATES:
        times = matching.times(matched, [size * 8 / rate for size in largest])
        period_s = matching.ends_s(times)
        busy = [
            own[step.ranks.index(0)]
            for step, own in zip(matched.steps, times, strict=True)
            if step.exchange is not None and 0 in step.ranks and largest[step.exchange]
        ]
        periods.append(f"{_time(period_s)} at {rate}")
        duties.append(f"{import_table.covered(busy) / period_s:.0%} at {rate}")
    yield _row("period", ", ".join(periods))
    yield _row("duty", ", ".join(duties))
    yield _row("assumed", "period and duty: each rank has a NIC, and exchanges inside a server take no time")


def _time(seconds: float) -> Duration:
    return Duration(round(seconds * 1e9))

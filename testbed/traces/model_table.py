"""The table at the end of a model's import: groups, bytes of a rank, work, times at three rates, assumptions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from testbed.core.text import decimal
from testbed.core.units import Rate
from testbed.traces import matching
from testbed.traces.import_table import duration, exchanged, group_sizes, row
from testbed.traces.operations import Role
from testbed.traces.steps import length
from testbed.traces.trace import Trace
from testbed.traces.wire_bytes import on_the_wire

RATES = (Rate(50 * 10**9), Rate(100 * 10**9), Rate(400 * 10**9))


def lines(trace: Trace) -> Iterator[str]:
    """The table, a line each."""
    inside = trace.placement.inside if trace.placement else ()
    yield row("model", trace.model)
    for name, lists in trace.groups.items():
        where = "inside a server" if name in inside else "over the network"
        yield row("group", f"{name}: {len(lists)} × {len(lists[0])} ranks, {where}")
    roles = trace.all_roles
    yield row("ranks", f"{trace.ranks} in {len(roles)} stages" if trace.roles else str(trace.ranks))
    for where, role in _ends(roles):
        sizes = group_sizes(trace, role.ranks[0])
        for group in dict.fromkeys(op.group for op in role.operations if not op.computes):
            yield row(
                "bytes", f"{where}{group}: {exchanged([op for op in role.operations if op.group == group], sizes)}"
            )
    flops = max(sum(op.flops or 0.0 for op in role.operations) for role in roles)
    yield row("work", f"{decimal(flops / 1e12)} TFLOP per iteration and rank")
    if trace.device is None:
        yield row("times", "depend on the device: give --device here, or to a run")
    else:
        yield from _times(trace.timed(None), inside)
    for each in trace.assumptions:
        left_out = each.startswith("left out: ")
        yield row("left out" if left_out else "assumed", each.removeprefix("left out: "))


def _ends(roles: Sequence[Role]) -> list[tuple[str, Role]]:
    """The first stage and the last one; the only one without a name."""
    return [("", roles[0])] if len(roles) == 1 else [(f"{role.name}, ", role) for role in (roles[0], roles[-1])]


def _times(trace: Trace, inside: Sequence[str]) -> Iterator[str]:
    assert trace.device is not None
    compute_s = max(sum(op.duration or 0 for op in role.operations) / 1e9 for role in trace.all_roles)
    yield row("compute", f"{duration(compute_s)} per iteration and rank on {trace.device.device()}")
    matched = trace.matched
    largest = [
        0 if one.group in inside else max(on_the_wire(one.first.kind, one.first.size, len(one.members)))
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
        periods.append(f"{duration(period_s)} at {rate}")
        duties.append(f"{length(busy) / period_s:.0%} at {rate}")
    yield row("period", ", ".join(periods))
    yield row("duty", ", ".join(duties))
    yield row("assumed", "period and duty: each rank has a NIC, and exchanges inside a server take no time")

"""The traces of the library as the table of docs/traces.md: ``python tools/trace_table.py`` prints it."""

from __future__ import annotations

from testbed.cli.show import busy_s
from testbed.core.units import Rate
from testbed.traces import trace as traces

WORKERS = 2


def row(name: str) -> str:
    """One line of the table: what, from where, how much, how long, how busy."""
    trace = traces.load(name)
    rate = trace.native_rate or Rate(50 * 10**9)
    period_s = traces.critical_path_s(trace, lambda op: traces.busiest_s(op, WORKERS, rate))
    busy = busy_s(trace, WORKERS, rate)
    exchanges = sum(op.kind != "compute" for op in trace.operations)
    return (
        f"| `{name}` | {trace.model} | {trace.source.kind} | {trace.bytes_per_iteration / 1e6:,.1f} MB in {exchanges} | "
        f"{rate} | {period_s * 1e3:,.1f} ms | {busy / period_s:.0%} |"
    )


def table() -> str:
    head = "| name | what | label | per iteration | native rate | alone | duty |\n|---|---|---|---|---|---|---|"
    return "\n".join([head, *(row(name) for name in traces.names())])


if __name__ == "__main__":
    print(table())

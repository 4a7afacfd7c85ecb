"""Traces as the tests make them."""

from __future__ import annotations

from pathlib import Path

from testbed.core.units import Duration, Size
from testbed.traces import collectives
from testbed.traces.trace import VERSION, Operation, Source, Trace, save


def one_exchange(folder: Path, collective: str, size: str, compute: str = "10ms") -> str:
    """The file of a trace that computes, then carries out ``collective`` once."""
    kind = collectives.find(collective).KIND
    trace = Trace(
        version=VERSION,
        name=collective,
        model="a test",
        source=Source(kind="synthetic"),
        operations=(
            Operation(id="compute", kind="compute", duration=Duration.parse(compute)),
            Operation(id="exchange", kind=kind, bytes=Size.parse(size), after=("compute",), algorithm=collective),
        ),
    )
    path = folder / f"{collective}.json"
    save(trace, path)
    return str(path)

"""What a replay did against its trace."""

from __future__ import annotations

import pandas as pd

from tests.runs import Result
from workloads import trace as traces
from workloads.trace import Trace


def starts(result: Result, trace: Trace) -> pd.DataFrame:
    """``measured_s`` and ``expected_s`` after its iteration's start of every collective, and of the iteration's end.

    What is expected follows from the trace and from how long the collectives before took.
    Raises if an iteration carried other bytes than the trace's.
    """
    (job,) = result.manifest["plan"]["jobs"]
    iterations, operations = result.table("iterations.csv"), result.table("operations.csv")
    assert len(iterations) == job["iterations"] * len(job["hosts"])
    rows = []
    for mine in iterations.itertuples():
        assert mine.bytes == job["bytes_per_worker"][mine.worker]
        if any(op.ranks is not None and mine.worker not in op.ranks for op in trace.operations):
            continue  # it waits for the others' computing
        own = operations[(operations["worker"] == mine.worker) & (operations["iteration"] == mine.iteration)]
        took = (own["end_s"] - own["start_s"]).set_axis(own["operation"])
        times = traces.schedule(trace, lambda op, took=took: float(took[op.id]))  # type: ignore[misc]
        rows += [(at - mine.start_s, times[name][0]) for name, at in zip(own["operation"], own["start_s"], strict=True)]
        rows.append((mine.end_s - mine.start_s, max(end for _, end in times.values())))
    return pd.DataFrame(rows, columns=["measured_s", "expected_s"])

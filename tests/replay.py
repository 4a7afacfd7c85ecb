"""What a replay did against its trace."""

from __future__ import annotations

from typing import Any

import pandas as pd

from tests.runs import Result
from workloads.trace import Trace


def starts(result: Result, trace: Trace) -> pd.DataFrame:
    """``measured_s`` and ``expected_s`` after its iteration's start of every collective, and of the iteration's end.

    What is expected follows from the trace and from when the collectives before ended.
    Raises if an iteration carried other bytes than the trace's.
    """
    (job,) = result.manifest["plan"]["jobs"]
    iterations, operations = result.table("iterations.csv"), result.table("operations.csv")
    assert len(iterations) == job["iterations"] * len(job["hosts"])
    rows: list[tuple[float, float]] = []
    mine: Any
    for mine in iterations.itertuples():
        assert mine.bytes == job["bytes_per_worker"][mine.worker]
        if any(op.ranks is not None and mine.worker not in op.ranks for op in trace.operations):
            continue  # it waits for the others' computing
        own = operations[(operations["worker"] == mine.worker) & (operations["iteration"] == mine.iteration)]
        actual: Any = own.set_index("operation")[["start_s", "end_s"]] - mine.start_s
        ended: dict[str, float] = {}
        computing = communicating = 0.0
        for op in trace.operations:
            ready = max([0.0, *(ended[name] for name in op.after)])
            if op.kind == "compute":
                ended[op.id] = computing = max(computing, ready) + (op.duration or 0) / 1e9
                continue
            rows.append((actual.at[op.id, "start_s"], max(communicating, ready)))
            ended[op.id] = communicating = actual.at[op.id, "end_s"]
        rows.append((mine.end_s - mine.start_s, max(ended.values())))
    return pd.DataFrame(rows, columns=["measured_s", "expected_s"])

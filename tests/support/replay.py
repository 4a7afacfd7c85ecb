"""What a replay did against its trace."""

from __future__ import annotations

from typing import Any

import pandas as pd

from testbed.traces.pipelining import EARLIER
from testbed.traces.trace import Trace
from tests.support.runs import Result


def starts(result: Result, trace: Trace) -> pd.DataFrame:
    """``measured_s`` and ``expected_s`` after its iteration's start of every collective, and of the iteration's end.

    What is expected follows from the trace and from when the collectives before ended; where iterations overlap, that none
    begins before what it waits for (`_not_before`).
    Raises if an iteration carried other bytes than the trace's.
    """
    (job,) = result.manifest["plan"]["jobs"]
    iterations, operations = result.table("iterations.csv"), result.table("operations.csv")
    assert len(iterations) == job["iterations"] * len(job["hosts"])
    rows: list[tuple[float, float]] = []
    mine: Any
    for mine in iterations.itertuples():
        assert mine.bytes == job["bytes_per_worker"][mine.worker]
    if trace.overlaps:
        return pd.DataFrame(_not_before(iterations, operations, trace), columns=["measured_s", "expected_s"])
    for mine in iterations.itertuples():
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


def _not_before(iterations: pd.DataFrame, operations: pd.DataFrame, trace: Trace) -> list[tuple[float, float]]:
    """Of every collective when it began, and that or, if it is later, when what it waits for had ended; after the start of the run."""
    rows: list[tuple[float, float]] = []
    for worker, own in iterations.groupby("worker"):
        computing = float(own["start_s"].min())
        before: dict[str, float] = {}  # when operations of the iteration before ended
        for number in sorted(own["iteration"]):
            told = operations[(operations["worker"] == worker) & (operations["iteration"] == number)]
            actual: Any = told.set_index("operation")[["start_s", "end_s"]]
            ended: dict[str, float] = {}
            for op in trace.operations:
                ready = max([0.0, *(before.get(name, 0.0) if EARLIER in name else ended[name] for name in op.after)])
                if op.kind == "compute":
                    ended[op.id] = computing = max(computing, ready) + (op.duration or 0) / 1e9
                    continue
                begun = float(actual.at[op.id, "start_s"])
                rows.append((begun, max(begun, ready)))
                ended[op.id] = float(actual.at[op.id, "end_s"])
            before = {f"{name}{EARLIER}": at for name, at in ended.items()}
    return rows

"""A run's tables, each with the columns ``system`` and ``seed`` first, as Python gets them (`testbed.load`)."""

from __future__ import annotations

import pandas as pd

from testbed.core.runs.load import Run


def of(run: Run) -> dict[str, pd.DataFrame]:
    """Return all tables of a run by name, ordered by name."""
    found = {}
    for path in sorted(run.path.glob("*.csv")):
        table = run.table(path.stem)
        if table is not None:
            table = table.drop(columns=["system", "seed"], errors="ignore")
            table.insert(0, "system", run.system)
            table.insert(1, "seed", run.seed)
            found[path.stem] = table
    return found

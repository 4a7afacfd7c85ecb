"""One tidy CSV file of all tables of a run: a row for each value, ``system,seed,table,…,metric,value``."""

from __future__ import annotations

import pandas as pd

from testbed.core.runs.load import Run
from testbed.exports import tables

_KEYS = (
    "t_s",
    "job",
    "worker",
    "iteration",
    "operation",
    "label",
    "flow",
    "link",
    "peer",
    "side",
    "stage",
    "band",
    "core",
    "kind",
)
_WHOLE = ("job", "worker", "iteration", "peer", "band", "core")


def text(run: Run) -> str:
    """The file. Of a metric that is not known there is no row."""
    parts = []
    for name, table in tables.of(run).items():
        keys = ["system", "seed", *(key for key in _KEYS if key in table.columns)]
        part = table.astype({column: object for column in table.columns if column not in keys})
        part = part.melt(keys, var_name="metric", value_name="value").dropna(subset="value")
        part.insert(2, "table", name)
        parts.append(part)
    whole = pd.concat(parts, ignore_index=True)
    used = [key for key in _KEYS if key in whole.columns]
    whole[[key for key in used if key in _WHOLE]] = whole[[key for key in used if key in _WHOLE]].astype("Int64")
    columns = ["system", "seed", "table", *used, "metric", "value"]
    return str(whole[columns].to_csv(index=False))

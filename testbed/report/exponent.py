"""The shares of two jobs while both send with MLTCP active, and the exponent p that explains them: shares ∝ F^p."""

from __future__ import annotations

import numpy as np
import pandas as pd

from testbed.core.runs import metrics
from testbed.core.runs.load import Run
from testbed.models.fluid import MLTCP_ACTIVE_FROM

WINDOW_S = 0.01
FEWEST = 25  # windows


def busiest(run: Run) -> dict[int, pd.DataFrame]:
    """Each job's flow that carries most."""
    tables = {}
    for job, rows in run.flows.groupby("job"):
        flows = [flow for _, flow in rows.groupby(["worker", "flow"])]
        tables[int(str(job))] = max(flows, key=lambda flow: float(flow["bytes_acked"].max()))
    return tables


def together(run: Run) -> pd.DataFrame:
    """Windows in which both jobs send with F in force: ``force`` (log of the ratio of F), ``share`` of job 1."""
    rates = metrics.throughput(run.flows, WINDOW_S)
    flows = busiest(run)
    known = {job: flow.dropna(subset="mltcp_r") for job, flow in flows.items()}
    if any(rows.empty for rows in known.values()):
        return pd.DataFrame(columns=["force", "share"])
    force = [np.interp(rates.index, known[job]["t_s"], known[job]["mltcp_f"]) for job in (0, 1)]
    phases = metrics.phases(run.iterations)
    sending = np.ones(len(rates), dtype=bool)
    middle = rates.index.to_numpy()[:, None]
    for job in (0, 1):
        rows = phases[(phases["job"] == job) & (phases["iteration"] >= MLTCP_ACTIVE_FROM)]
        begin, end = rows["begin_s"].to_numpy() + 2 * WINDOW_S, rows["end_s"].to_numpy() - 2 * WINDOW_S
        sending &= ((middle > begin) & (middle < end)).any(axis=1)
    total = rates[0] + rates[1]
    table = pd.DataFrame({"force": np.log(force[1] / force[0]), "share": rates[1] / total})
    return table[sending & (table["share"].to_numpy() > 0.005) & (table["share"].to_numpy() < 0.995)]


def slope(rows: pd.DataFrame) -> float:
    """Exponent p of shares ∝ F^p by least squares through the origin, on logarithms."""
    x, y = rows["force"], np.log(rows["share"] / (1 - rows["share"]))
    return float((x * y).sum() / (x**2).sum())

"""Traffic matrix as CSV: a row for each job, a column for each direction of a bottleneck, in bytes of acknowledged payload from the start to the last sample."""

from __future__ import annotations

import pandas as pd

from testbed.core.runs.load import LoadError, Run
from testbed.models import bottleneck


def table(run: Run) -> pd.DataFrame:
    """The matrix after ``job`` and ``until_s``, the time of the last sample; raises `LoadError` if the run does not record each flow's links."""
    crossed = bottleneck.crossings(run)
    if crossed is None:
        raise LoadError(
            f"{run.path} does not record which flow crosses which link (nothing was sampled, or a link fails in it), so there is no "
            "matrix. Export --csv, which has the bytes of each flow and of each link."
        )
    acked = run.flows.groupby(["job", "worker", "flow"])["bytes_acked"].max()
    until_s = float(run.flows["t_s"].max())
    rows = [
        {
            "job": job.job,
            "until_s": until_s,
            **{link: sum(int(acked[flow]) for flow in flows if flow[0] == job.job) for link, flows in crossed.items()},
        }
        for job in run.jobs
    ]
    return pd.DataFrame(rows)

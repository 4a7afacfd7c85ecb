"""The shares of a link of two jobs that send as fast as they can."""

from __future__ import annotations

import pandas as pd

from testbed.core.runs.load import Run
from testbed.models.frames import payload_share

FAIR, HALF = 0.5, 0.5
BEGIN = 0.2  # fraction of the time until the first job leaves, from which shares are measured


def shares(run: Run) -> tuple[float, float] | None:
    """Shares of the link of the first job, until it leaves, and of the other; None unless the first job has a separate transport and leaves."""
    first, other = run.jobs[0], run.jobs[-1]
    if first.by_tcp or first.leave_ns is None or first is other:
        return None
    leaves_s = first.leave_ns / 1e9
    late = run.flows[run.flows["t_s"].between(BEGIN * leaves_s, leaves_s)]
    span_s = float(late["t_s"].max() - late["t_s"].min())
    by_job = late.groupby(["job", "worker", "flow"])["bytes_acked"].agg(lambda acked: acked.max() - acked.min())
    whole = run.rate_bps / 8 * payload_share(run.plan.link.mtu) * span_s
    ltp, tcp = (float(by_job.get(job.job, pd.Series([0.0])).sum()) / whole for job in (first, other))
    return ltp, tcp

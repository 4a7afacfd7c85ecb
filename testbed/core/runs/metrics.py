"""Metrics as pure functions of run tables. Times in seconds."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil

import numpy as np
import pandas as pd

INTERLEAVED_WITHIN = 0.05  # of the iteration time in isolation
INTERLEAVED_FEWEST = 5  # consecutive iterations, up to the end of the run
INTERLEAVED_SHARE = 0.2  # minimum fraction of the run's iterations
STEADY_ITERATIONS = 10


def iteration_times(iterations: pd.DataFrame) -> pd.DataFrame:
    """Iteration time per job: a row per iteration, a column per job; NaN past a job's last.

    An iteration ends for a job when its slowest worker has ended; it began where the
    one before ended (the first: where its first worker started).
    """
    by = iterations.groupby(["job", "iteration"])
    ends = by["end_s"].max().unstack("job")
    begins = ends.shift(1)
    begins.iloc[0] = by["start_s"].min().unstack("job").iloc[0]
    return ends - begins


def steady(times: pd.DataFrame) -> float:
    """Mean over the jobs of each job's last ten iterations."""
    return float(np.mean([times[job].dropna().tail(STEADY_ITERATIONS).mean() for job in times]))


def pooled(times: pd.DataFrame) -> np.ndarray:
    """Return the times of all iterations of all jobs in one array, in seconds, without missing ones."""
    every = times.to_numpy().ravel()
    return np.asarray(every[~np.isnan(every)])


def alone(times: pd.DataFrame) -> float:
    """`isolated_s`: mean of a lone job's iterations, without the first if there are more (connections are new in it)."""
    return float((times.iloc[1:] if len(times) > 1 else times).to_numpy().mean())


def interleaved_needs(iterations: int) -> int:
    """Return how many last iterations must be near the isolated time in a run of ``iterations`` iterations."""
    return max(INTERLEAVED_FEWEST, ceil(INTERLEAVED_SHARE * iterations))


def interleaved_at(times: pd.DataFrame, isolated_s: pd.Series[float] | float) -> int | None:
    """The first iteration from which every job stays within 5 % of its isolated time, up to the end of the run.

    None if there is no such iteration, or fewer than `interleaved_needs` follow: a few may be luck.
    """
    outside = (times > isolated_s * (1 + INTERLEAVED_WITHIN)).any(axis="columns").to_numpy()
    late = np.flatnonzero(outside)
    first = int(late[-1]) + 1 if late.size else 0
    return int(times.index[first]) if len(times) - first >= interleaved_needs(len(times)) else None


def mltcp_active_from(iterations: pd.DataFrame, flows: pd.DataFrame, jobs: Sequence[int] | None = None) -> int | None:
    """The first iteration with MLTCP active in all ``jobs`` (their flows report a bytes_ratio).

    ``jobs``: those that run MLTCP; None: all. F has no meaning for other jobs.
    """
    known = flows.dropna(subset="mltcp_r")
    first = []
    for job, rows in iterations.groupby("job"):
        if jobs is not None and job not in jobs:
            continue
        seen = known.loc[known["job"] == job, "t_s"]
        if seen.empty:
            return None
        ends = rows.groupby("iteration")["end_s"].max()
        # F is known from a boundary on, which is the start of a communication phase.
        after = ends[ends >= seen.iloc[0]]
        if after.empty:
            return None
        first.append(int(after.index[0]))
    return max(first, default=None)


def carried(flows: pd.DataFrame) -> np.ndarray:
    """Payload bytes acknowledged per job in the second quarter of a run, where all jobs send and none has just started."""
    end = flows["t_s"].max()
    middle = flows[(flows["t_s"] > end / 4) & (flows["t_s"] < end / 2)]
    by_flow = middle.groupby(["job", "worker", "flow"])["bytes_acked"]
    return np.asarray((by_flow.last() - by_flow.first()).groupby("job").sum(), dtype=float)


def delivered(messages: pd.DataFrame | None) -> float | None:
    """Return the delivered fraction of gradient bytes in ``messages.csv``; None for a lossless transport, which has no
    such table."""
    if messages is None:
        return None
    gradients = messages[(messages["side"] == "receive") & (messages["stage"] == "gradient")]
    if gradients.empty:
        return None
    return float(gradients["delivered"].sum() / gradients["bytes"].sum())


def jain_index(shares: np.ndarray) -> float:
    """Jain's fairness index of a vector of shares: 1 if all are equal, 1/n if one has everything."""
    return float(shares.sum() ** 2 / (len(shares) * (shares**2).sum()))


def throughput(flows: pd.DataFrame, window_s: float) -> pd.DataFrame:
    """Acknowledged payload per job in bit/s over consecutive windows: index is the window's middle.

    Counters are linearly interpolated onto the window edges, since samples are not exactly on them.
    """
    edges = np.arange(0.0, float(flows["t_s"].max()), window_s)
    columns = {}
    for job, rows in flows.groupby("job"):
        total = np.zeros(len(edges))
        for _, flow in rows.groupby(["worker", "flow"]):
            total += np.interp(edges, flow["t_s"], flow["bytes_acked"])
        columns[job] = np.diff(total) * 8 / window_s
    return pd.DataFrame(columns, index=(edges[:-1] + edges[1:]) / 2)


def utilisation(links: pd.DataFrame, link: str, rate_bps: float, begin_s: float, end_s: float) -> float:
    """Share of a link's rate that crossed it between two times, headers included; counters are interpolated linearly."""
    rows = links[links["link"] == link]
    carried_bytes = np.diff(np.interp([begin_s, end_s], rows["t_s"], rows["bytes"]))[0]
    return float(carried_bytes * 8 / (rate_bps * (end_s - begin_s)))


def phases(iterations: pd.DataFrame) -> pd.DataFrame:
    """Communication phases: ``begin_s`` and ``end_s`` of every job and iteration.

    A phase begins when the first worker that sends does (one that only receives waits from the start), and ends with the
    slowest.
    """
    by = ["job", "iteration"]
    begin = iterations[iterations["bytes"] > 0].groupby(by)["comm_start_s"].min()
    return pd.DataFrame({"begin_s": begin, "end_s": iterations.groupby(by)["end_s"].max()}).dropna().reset_index()


def overlap(iterations: pd.DataFrame) -> pd.DataFrame:
    """Return the fraction of its communication phase that each job shares with another job's: a row per iteration, a
    column per job.

    0: interleaved; 1: another job always communicates at the same time.
    """
    every = phases(iterations)
    shares = np.empty(len(every))
    spans = every[["begin_s", "end_s"]].to_numpy()
    jobs = every["job"].to_numpy()
    for row, (begin, end) in enumerate(spans):
        others = spans[jobs != jobs[row]]
        clipped = np.clip(others, begin, end)
        shares[row] = _covered(clipped[clipped[:, 1] > clipped[:, 0]]) / (end - begin)
    return every.assign(share=shares).pivot(index="iteration", columns="job", values="share")


def _covered(spans: np.ndarray) -> float:
    """Length of the union of intervals."""
    total, reached = 0.0, -np.inf
    for begin, end in spans[np.argsort(spans[:, 0])]:
        total += max(0.0, end - max(begin, reached))
        reached = max(reached, end)
    return total


def start_difference(iterations: pd.DataFrame, period_s: float) -> pd.Series[float]:
    """Return, for two jobs and each iteration, the difference between their communication starts, 0 to half a period,
    in seconds.

    Jobs may be several iterations apart, so the difference is taken modulo ``period_s``.
    """
    begins = phases(iterations).pivot(index="iteration", columns="job", values="begin_s").dropna()
    apart = begins.iloc[:, 1] - begins.iloc[:, 0]
    return (apart - period_s * (apart / period_s).round()).abs()

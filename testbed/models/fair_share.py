"""Jobs that share one link exactly fairly, without packets: what overlap alone does to iteration times."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np


def iteration_times(
    compute_s: Sequence[float], comm_s: Sequence[float], offsets_s: Sequence[float], iterations: Sequence[int]
) -> list[np.ndarray]:
    """Return the times in seconds of each job's iterations, which compute and then communicate (``comm_s``: isolated
    time on the link).

    All communicating jobs have equal shares. A job continues until every job has its ``iterations``.
    """
    compute, comm = np.asarray(compute_s, dtype=float), np.asarray(comm_s, dtype=float)
    began = np.asarray(offsets_s, dtype=float)
    until, left = began + compute, np.full(len(comm), np.inf)  # end of computing, and seconds left to send
    found: list[list[float]] = [[] for _ in comm]
    now = 0.0
    while any(len(times) < count for times, count in zip(found, iterations, strict=True)):
        sending = np.isfinite(left)
        share = max(1, int(sending.sum()))
        ahead = min(float((now + left * share)[sending].min(initial=np.inf)), float(until.min()))
        left[sending] -= (ahead - now) / share
        now = ahead
        for job in np.flatnonzero(sending & (left <= 1e-12)):
            found[job].append(now - began[job])
            began[job], until[job], left[job] = now, now + compute[job], np.inf
        ready = until <= now
        left[ready], until[ready] = comm[ready], np.inf
    return [np.asarray(times[:count]) for times, count in zip(found, iterations, strict=True)]

"""Invariants of TCP: whether MLTCP was active, what else limited senders, stalls, receivers' drops."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import pandas as pd

from testbed.campaign.verdict.invariant import Case, Noted, Unjudged, not_applicable, not_evaluated
from testbed.core.text import decimal
from testbed.linux.sampling.probes import RECEIVER_DROPS

LEARNED = 4  # iterations: MLTCP is active from the third, plus one (docs/reference/congestion-controls.md)
OLDER = "an older testbed did not record it"


def runs_mltcp(case: Case) -> Unjudged | None:
    """The condition that some job runs MLTCP."""
    return None if _mltcp(case) else not_applicable("no job runs MLTCP")


def _mltcp(case: Case) -> list[int]:
    return [job.job for job in case.plan.jobs if job.cc.traits.learns]


def in_force(case: Case) -> float | Unjudged:
    """I16: fraction of the steady-state communication time with MLTCP active; of the job with the lowest.

    Steady state is the second half of a job's iterations, without the first four, in which MLTCP learns.
    """
    shares = []
    for job in _mltcp(case):
        rows = case.carried[case.carried["job"] == job]
        settled = rows[rows["iteration"] >= max(LEARNED, (rows["iteration"].max() + 1) // 2)]
        known = list(_known(settled, case.flows[case.flows["job"] == job]))
        if not known:
            return not_evaluated(f"job {job} has no iteration after learning (the first {LEARNED})")
        shares.append(float(np.concatenate(known).mean()))
    return min(shares)


def _known(settled: pd.DataFrame, flows: pd.DataFrame) -> Iterator[np.ndarray]:
    """Of each worker's flows whether r was known, in every sample within one of its phases."""
    for worker, phases in settled[settled["bytes"] > 0].groupby("worker"):
        rows = flows[flows["worker"] == worker]
        at, begins, ends = rows["t_s"].to_numpy(), phases["comm_start_s"].to_numpy(), phases["end_s"].to_numpy()
        phase = np.searchsorted(begins, at, side="right") - 1
        within = (phase >= 0) & (at <= ends[phase])
        if within.any():
            yield rows["mltcp_r"].notna().to_numpy()[within]


def limited(case: Case) -> float | Noted | Unjudged:
    """I17: share of the time with data to send in which something else than congestion control held a job up; of the worst."""
    if case.measured.senders is None:
        return not_evaluated(OLDER)
    busy = [sender for sender in case.measured.senders if sender.busy_s > 0]
    if not busy:
        return not_evaluated("no job sent data")
    worst = max(busy, key=lambda sender: sender.limited_share)
    if not worst.limited_share:
        return 0.0
    return Noted(
        worst.limited_share,
        f"job {worst.job}: {decimal(worst.receive_window_s, 3)} s by a receive window, {decimal(worst.send_buffer_s, 3)} s by "
        f"a send buffer, of {decimal(worst.busy_s, 3)} s",
    )


def count(name: str) -> Callable[[Case], float | Unjudged]:
    """I18: how often the kernel counted ``name``, over all hosts."""

    def counted(case: Case) -> float | Unjudged:
        if case.measured.tcp is None:
            return not_evaluated(OLDER)
        found = case.measured.tcp.get(name)
        return not_evaluated(f"this kernel does not count {name}") if found is None else found

    return counted


def own_drops(case: Case) -> float | Noted | Unjudged:
    """I18: packets that hosts' queues dropped before they reached a link.

    The kernel counts no stall for them. A sender without outstanding packets probes again after TCP_RTO_MIN, 200 ms
    regardless of the minimum RTO (tcp_probe0_base and tcp_check_probe_timer, include/net/tcp.h).
    """
    hosts = {host for job in case.plan.jobs for host in job.hosts}
    tables = [table for table in (case.links, case.nics) if table is not None and len(table)]
    if not all("drops" in table for table in tables):
        return not_evaluated(OLDER)
    last = pd.concat([table.groupby("link")["drops"].max() for table in tables]) if tables else pd.Series(dtype=float)
    own = last[[str(link).rpartition("-")[0] in hosts for link in last.index]]
    if own.empty:
        return not_applicable("the NICs are not rate-limited")
    return Noted(float(own.sum()), f"most before {own.idxmax()}: {own.max():.0f}") if own.sum() else 0.0


def receiver_drops(case: Case) -> float | Noted | Unjudged:
    """I19: packets that receivers dropped, for lack of memory or because their program did not read, ÷ packets."""
    if case.measured.tcp is None:
        return not_evaluated(OLDER)
    found = {name: case.measured.tcp.get(name, 0) for name in RECEIVER_DROPS}
    share = sum(found.values()) / max(1, case.measured.counters.packets)
    return Noted(share, ", ".join(f"{name} {value}" for name, value in found.items() if value)) if share else 0.0

"""The flows that cross a bottleneck, and their direction, according to a run's manifest.

A job's flows go in both directions (a ring is full duplex), and in a network with several bottlenecks each flow crosses
only some of them. So a link's traffic is the sum over the flows that cross it in one direction, and never that over all
flows of a run.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import numpy as np
import pandas as pd

from testbed.core.runs import metrics
from testbed.core.runs.load import Run
from testbed.models.frames import payload_share

Flow = tuple[int, int, str]  # job, worker, flow, as in flows.csv
BACKGROUND = "background"  # column of background traffic, after those of the jobs
ALIKE = 0.02  # links whose use differs by less count as equally busy


def crossings(run: Run) -> dict[str, set[Flow]] | None:
    """Return the flows that cross each direction of a bottleneck (``s1-s2``).

    None if this is unknown: the manifest is older than this record, nothing was sampled, or a link fails, after which
    flows use other paths.
    """
    crossed = run.manifest.crossings or run.manifest.measured.paths
    if not crossed or run.flows.empty or any(event.up is False for event in run.plan.events):
        return None
    found: dict[str, set[Flow]] = {name: set() for name in run.plan.bottlenecks}
    for flow in crossed:
        for name in flow.links:
            if name in found:
                found[name].add((flow.job, flow.worker, flow.flow))
    return {name: flows for name, flows in found.items() if flows}


def busiest(runs: Sequence[Run]) -> str | None:
    """The direction of a bottleneck that carries most of its rate over ``runs``; of equally busy ones that of most jobs.

    None if the flows that cross it are unknown in one of the runs.
    """
    known = [found for run in runs if (found := crossings(run)) is not None]
    names = set.intersection(*(set(one) for one in known)) if known else set()
    if len(known) < len(runs) or not names:
        return None
    used = {name: float(np.mean([_used(run, name) for run in runs])) for name in sorted(names)}
    best = max(used.values())
    return max(
        (name for name in used if used[name] >= best - ALIKE),
        key=lambda name: len({job for job, _, _ in known[0][name]}),
    )


def _used(run: Run, link: str) -> float:
    """Return the utilisation of a link over the complete run, headers included."""
    rows = run.links[run.links["link"] == link]
    if rows.empty or not (last := rows.iloc[-1])["t_s"]:
        return 0.0
    return float(last["bytes"] * 8 / last["t_s"] / rate_bps(run, link))


def rate_bps(run: Run, link: str) -> float:
    """The rate of this direction in the plan, at the beginning."""
    return float(run.plan.bottlenecks[link].rate_bps)


def carried(run: Run, link: str, window_s: float) -> pd.DataFrame:
    """Return the rate over ``link`` in bit/s, headers included, over consecutive windows: a column per job, index the
    window's middle in s.

    The sum comes from the queue's counters. The parts of the jobs come from acknowledgements: those in the window, or
    in the nearest earlier window with any. During loss recovery there are none, although the link is busy. With
    background traffic, a last column `BACKGROUND` has the rest.
    """
    wanted = (crossings(run) or {})[link]
    flows = pd.MultiIndex.from_frame(run.flows[["job", "worker", "flow"]])
    acked = metrics.throughput(run.flows[flows.isin(wanted)], window_s)
    rows = run.links[run.links["link"] == link]
    edges = np.append(acked.index - window_s / 2, acked.index[-1:] + window_s / 2)
    sums = np.diff(np.interp(edges, rows["t_s"], rows["bytes"])) * 8 / window_s
    if run.plan.background:
        return _with_background(acked / payload_share(run.plan.link.mtu), sums)
    shares = acked.div(acked.sum(axis="columns").replace(0, np.nan), axis="index").ffill().bfill()
    return shares.mul(sums, axis="index")


def _with_background(acked: pd.DataFrame, sums: np.ndarray) -> pd.DataFrame:
    """The rates of the jobs as acknowledged, headers included, and the rest of ``sums`` as `BACKGROUND`.

    Acknowledgements for more than the link carried in a window are for bytes of earlier windows.
    """
    rates = acked.to_numpy(copy=True)
    for k in range(len(rates) - 1, -1, -1):
        due = rates[k].copy()
        rates[k] *= min(1.0, sums[k] / due.sum()) if due.any() else 0.0
        if k:
            rates[k - 1] += due - rates[k]
    found = pd.DataFrame(rates, index=acked.index, columns=acked.columns)
    return found.assign(**{BACKGROUND: np.maximum(0.0, sums - rates.sum(axis=1))})


def needs(run: Run, periods_s: pd.Series[float]) -> dict[str, float]:
    """Return, by direction of a bottleneck, the fraction of its rate that all jobs need together if each iteration
    took ``periods_s``.

    Headers are included. The bytes are those acknowledged in the iterations that count. Empty if unknown.
    """
    found = crossings(run)
    if found is None:
        return {}
    wire = 1 / payload_share(run.plan.link.mtu)
    per_iteration = _bytes_per_iteration(run)
    return {
        name: float(sum(per_iteration[flow] / periods_s[flow[0]] for flow in sorted(flows)))
        * wire
        * 8
        / rate_bps(run, name)
        for name, flows in found.items()
    }


def busy_s(run: Run) -> dict[int, float]:
    """Return, by job, the time in seconds that an iteration's bytes need on its slowest bottleneck; empty if unknown."""
    found = dict[int, float]()
    wire, per_iteration = 1 / payload_share(run.plan.link.mtu), _bytes_per_iteration(run)
    for name, flows in (crossings(run) or {}).items():
        for job in {job for job, _, _ in flows}:
            own = sum(per_iteration[flow] for flow in sorted(flows) if flow[0] == job)
            found[job] = max(found.get(job, 0.0), own * wire * 8 / rate_bps(run, name))
    return found


def _bytes_per_iteration(run: Run) -> dict[Flow, float]:
    """Payload of each flow in one iteration of its job, on average."""
    times = run.times
    ends = run.iterations.groupby("job")["end_s"].max()
    found = {}
    for key, rows in run.flows.groupby(["job", "worker", "flow"]):
        job, worker, flow = cast(Flow, key)
        acked = float(np.interp(ends[job], rows["t_s"], rows["bytes_acked"]))
        found[job, worker, flow] = acked / int(times[job].count())
    return found

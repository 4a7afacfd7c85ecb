"""A run as columns of numbers over equal bins of time, for the explorer's page.

A bin is one sample interval long, or several if a run has more samples than fit into the page. Of sampled values
(windows, F, queues), a column holds the mean of each bin, and two more the minimum and the maximum, so that peaks stay.
Of counters (bytes, drops, marks), it holds the increase in the bin. Values have four digits of the largest in the
column.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil
from typing import Any, cast

import msgspec
import numpy as np
import pandas as pd

from testbed.core.runs import metrics
from testbed.core.runs.load import Run
from testbed.core.runs.plan import JobPlan
from testbed.core.text import plain
from testbed.models import bottleneck

MOST_JOBS, MOST_LINKS = 16, 8  # whose samples the page shows
DIGITS = 4


class Column(msgspec.Struct, frozen=True):
    """Values ÷ ``scale`` as whole numbers; None: no value in this bin."""

    scale: float
    values: list[int | None]


class Spread(msgspec.Struct, frozen=True, omit_defaults=True):
    """The samples in each bin; ``low`` and ``high`` are absent where every bin has only one value."""

    mean: Column
    low: Column | None = None
    high: Column | None = None


class Job(msgspec.Struct, frozen=True):
    """One job. Times in seconds since the start of the run."""

    job: int
    trace: str
    congestion: str
    ideal_s: float | None
    begin: float  # of the first iteration
    ends: Column  # of every iteration
    busy: tuple[Column, Column]  # begins and ends of communication


class Link(msgspec.Struct, frozen=True):
    """One direction of a bottleneck."""

    name: str  # empty: all links together, where the flows on each are unknown
    rates: list[tuple[float, float]]  # from a time on, in bit/s
    carried: dict[str, Column]  # by job, and of background traffic, in bit/s
    windows: dict[
        str, Spread
    ]  # by job, of its flows that cross the link, in segments; jobs with unknown windows are absent
    factors: dict[str, Spread]  # F likewise; only of MLTCP
    queue: Spread | None  # bytes
    drops: Column | None
    marks: Column | None


class Series(msgspec.Struct, frozen=True):
    """The data of a run on the page."""

    bin_s: float
    bins: int
    jobs: list[Job]
    links: list[Link]
    left_out: str  # omitted data, in words; empty: none


def series(run: Run, most_bins: int) -> Series:
    """The columns of ``run``, at most ``most_bins`` long; raises `LoadError` for tables that cannot be read."""
    end_s = float(max(run.iterations["end_s"].max(), run.flows["t_s"].max() if len(run.flows) else 0.0))
    sample_s = run.plan.sample_ns / 1e9
    bin_s = sample_s * max(1, ceil(end_s / sample_s / most_bins))
    bins = max(1, ceil(end_s / bin_s))
    jobs, links = run.jobs[:MOST_JOBS], _links(run)
    left_out = [
        f"{less} of {of} {what}"
        for less, of, what in ((len(run.jobs) - len(jobs), len(run.jobs), "jobs"), (len(links[MOST_LINKS:]), len(links), "links"))
        if less
    ]  # fmt: skip
    return Series(
        bin_s, bins,
        [_job(run, job, bin_s) for job in jobs],
        [_link(run, name, _flows(run, name), jobs, bin_s, bins) for name in links[:MOST_LINKS]],
        " and ".join(left_out),
    )  # fmt: skip


def column(values: Any) -> Column:
    """Numbers as a `Column`."""
    found = np.asarray(values, dtype=float)
    known = np.isfinite(found)
    largest = float(np.abs(found[known]).max()) if known.any() else 0.0
    scale = 10.0 ** (np.floor(np.log10(largest)) + 1 - DIGITS) if largest else 1.0
    return _scaled(found, known, float(f"{scale:.0e}"))


def times(values: Any) -> Column:
    """Seconds as a `Column`, to the microsecond."""
    found = np.asarray(values, dtype=float)
    return _scaled(found, np.isfinite(found), 1e-6)


def _scaled(values: np.ndarray, known: np.ndarray, scale: float) -> Column:
    whole = np.full(len(values), None, dtype=object)
    whole[known] = np.rint(values[known] / scale).astype(np.int64).tolist()
    return Column(scale, whole.tolist())


def _job(run: Run, plan: JobPlan, bin_s: float) -> Job:
    own = run.iterations[run.iterations["job"] == plan.job]
    ends = own.groupby("iteration")["end_s"].max()
    begin = float(own.loc[own["iteration"] == own["iteration"].min(), "start_s"].min())
    congestion = plain(plan.cc.spec if plan.by_tcp else plan.transport)
    return Job(plan.job, plain(plan.trace), congestion, plan.ideal_s, begin, times(ends), _busy(run, plan.job, bin_s))


def _busy(run: Run, number: int, bin_s: float) -> tuple[Column, Column]:
    """When any of its workers that send communicates (one that only receives waits from the start); a pause of less than a
    bin is none."""
    sends = run.iterations.loc[run.iterations["bytes"] > 0, ["job", "worker", "iteration"]]
    own = run.operations[run.operations["job"] == number].merge(sends).sort_values("start_s")
    starts, reached = own["start_s"].to_numpy(), np.maximum.accumulate(own["end_s"].to_numpy())
    first = np.ones(len(starts), dtype=bool)
    first[1:] = starts[1:] > reached[:-1] + bin_s
    last = np.roll(first, -1)
    return times(starts[first]), times(reached[last])


def _spread(rows: pd.DataFrame, name: str, bin_s: float, bins: int) -> Spread | None:
    values, at = rows[name].to_numpy(dtype=float), _bin(rows["t_s"], bin_s, bins)
    order = np.flatnonzero(np.isfinite(values))
    order = order[np.argsort(at[order], kind="stable")]
    values, at = values[order], at[order]
    if not len(values):
        return None
    firsts = np.flatnonzero(np.diff(at, prepend=-1))
    counts = np.diff(firsts, append=len(at))

    def spaced(of_bins: np.ndarray) -> Column:
        whole = np.full(bins, np.nan)
        whole[at[firsts]] = of_bins
        return column(whole)

    mean = spaced(np.add.reduceat(values, firsts) / counts)
    low, high = np.minimum.reduceat(values, firsts), np.maximum.reduceat(values, firsts)
    return Spread(mean) if (low == high).all() else Spread(mean, spaced(low), spaced(high))


def _bin(t_s: pd.Series[float], bin_s: float, bins: int) -> np.ndarray:
    return np.asarray(np.floor(t_s / bin_s + 1e-6).clip(0, bins - 1), dtype=int)


def _links(run: Run) -> list[str]:
    """Directions of bottlenecks, those first that carry most; one without a name, where the flows on them are unknown."""
    found = bottleneck.crossings(run)
    if not found:
        return [""]
    carried = run.links.groupby("link")["bytes"].max()
    return sorted(found, key=lambda name: -float(carried.get(name, 0)) / bottleneck.rate_bps(run, name))


def _flows(run: Run, name: str) -> dict[int, pd.DataFrame]:
    """By job the samples of its flows that cross a link."""
    crossing = (bottleneck.crossings(run) or {}).get(name)
    places: dict[int, list[np.ndarray]] = {}
    for key, rows in run.flows.groupby(["job", "worker", "flow"]).indices.items():
        flow = cast(bottleneck.Flow, key)
        if crossing is None or flow in crossing:
            places.setdefault(flow[0], []).append(np.asarray(rows))
    return {job: run.flows.iloc[np.concatenate(rows)] for job, rows in places.items()}


def _link(
    run: Run, name: str, flows: dict[int, pd.DataFrame], jobs: Sequence[JobPlan], bin_s: float, bins: int
) -> Link:
    rows = run.links[run.links["link"] == name]
    carried = bottleneck.carried(run, name, bin_s) if name else metrics.throughput(run.flows, bin_s)
    windows, factors = dict[str, Spread](), dict[str, Spread]()
    for job in jobs:
        own = flows.get(job.job, run.flows.iloc[:0])
        if found := _spread(own, "cwnd_segments", bin_s, bins):
            windows[str(job.job)] = found
        if job.cc.traits.learns and (found := _spread(own, "mltcp_f", bin_s, bins)):
            factors[str(job.job)] = found
    return Link(
        name, _rates(run, name) if name else [],
        {str(one): column(carried[one].iloc[:bins]) for one in (*(job.job for job in jobs), bottleneck.BACKGROUND) if one in carried},
        windows, factors,
        _spread(rows, "backlog_bytes", bin_s, bins) if run.manifest.clock != "model" else None,
        *(_count(rows, what, bin_s, bins) for what in ("drops", "ecn_marks")),
    )  # fmt: skip


def _rates(run: Run, name: str) -> list[tuple[float, float]]:
    changes = [(event.at_ns / 1e9, float(event.rate_bps)) for event in run.plan.events if event.link == name and event.rate_bps is not None]  # fmt: skip
    return [(0.0, bottleneck.rate_bps(run, name)), *changes]


def _count(rows: pd.DataFrame, name: str, bin_s: float, bins: int) -> Column | None:
    """The number of items in each bin; None: there are none."""
    if rows.empty or not rows[name].max():
        return None
    edges = np.arange(bins + 1) * bin_s
    known = np.searchsorted(rows["t_s"], edges + bin_s * 1e-6, side="right") - 1
    counter = np.concatenate([[0], rows[name].to_numpy()])[known + 1]
    return column(np.diff(counter))

"""The measures of a schedule: of its jobs, and of its GPUs."""

from __future__ import annotations

import bisect
import itertools
import math
from collections import Counter
from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt

from testbed.core.placing import Idle, Metrics, Request
from testbed.models.cluster import Ran, Servers

IterationTime = Callable[[Request, int], float]  # in seconds, of a job over so many servers without other jobs
HOUR_S = 3600.0


def measure(ran: Sequence[Ran], servers: Servers, iteration_s: IterationTime, *, cut_s: float | None = None) -> Metrics:
    """The usual numbers of a schedule; of one that was cut off at ``cut_s`` with the jobs that had arrived by then."""
    lasts = max(job.end_s for job in ran) if cut_s is None else cut_s
    done = np.array([job.done for job in ran], dtype=bool)
    stays = np.array([job.end_s - job.request.arrival_s for job in ran])
    held_s = np.array([sum(stint.end_s - stint.start_s for stint in job.held) for job in ran])
    gpus = np.array([job.request.gpus for job in ran])
    alone = np.array(
        [job.request.iterations * iteration_s(job.request, servers.fewest(job.request.gpus)) for job in ran]
    )
    spanning = np.array([held if _spans(job) else 0.0 for job, held in zip(ran, held_s, strict=True)])
    contention_s = float(np.sum([job.mean_contention * held for job, held in zip(ran, spanning, strict=True)]))
    count = len(servers.gpus)
    completion, queueing = stays[done], np.maximum(stays - held_s, 0)[done]
    return Metrics(
        lasts if cut_s is None else math.nan,
        _apply_or_nan(np.mean, completion),
        _apply_or_nan(np.min, completion),
        _apply_or_nan(_p95, completion),
        _apply_or_nan(np.max, completion),
        _apply_or_nan(np.mean, queueing),
        _apply_or_nan(_p95, queueing),
        _apply_or_nan(np.mean, _ratio(completion, alone[done])),
        _apply_or_nan(np.max, _ratio(completion, _fair_s(ran, alone, count)[done])),
        _apply_or_nan(_jain, _ratio(alone[done], completion)),
        float(gpus @ held_s) / (count * lasts) if lasts else 0.0,
        max((job.contention for job in ran), default=0),
        contention_s / float(spanning.sum()) if spanning.any() else 0.0,
        _idle(ran, count, lasts, iteration_s),
    )


def _apply_or_nan(number: Callable[[npt.NDArray[np.float64]], float], values: npt.NDArray[np.float64]) -> float:
    return float(number(values)) if len(values) else math.nan


def _p95(values: npt.NDArray[np.float64]) -> float:
    return float(np.percentile(values, 95))


def _spans(job: Ran) -> bool:
    return any(len({gpu.host for gpu in stint.gpus}) > 1 for stint in job.held)


def _ratio(over: npt.NDArray[np.float64], under: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """1 of a job that takes no time: it is as fast as alone."""
    return np.where(under > 0, over / np.where(under > 0, under, 1.0), 1.0)


def _jain(values: npt.NDArray[np.float64]) -> float:
    """(Σ x)² ÷ n Σ x²."""
    squares = float((values**2).sum())
    return float(values.sum()) ** 2 / (len(values) * squares) if squares else 1.0


def _fair_s(ran: Sequence[Ran], alone: npt.NDArray[np.float64], count: int) -> npt.NDArray[np.float64]:
    """How long each job would take with an equal share of the cluster to itself: what ρ is measured by.

    Source: Mahajan et al., "Themis: Fair and Efficient GPU Cluster Scheduling", NSDI 2020, ρ = T_shared ÷ T_ideal, where T_ideal is
    with 1/n of the cluster. Ours: n is the mean number of jobs present during this job's time, and a job whose GPUs are
    more than such a share takes longer there in proportion.
    """
    arrivals = np.sort([job.request.arrival_s for job in ran])
    ends = np.sort([job.end_s for job in ran])

    def job_seconds(until: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        """The sum of the times in the system of all jobs up to a time."""
        been = [np.concatenate([[0.0], np.cumsum(times)]) for times in (arrivals, ends)]
        came, gone = (np.searchsorted(times, until, side="right") for times in (arrivals, ends))
        found: npt.NDArray[np.float64] = (came * until - been[0][came]) - (gone * until - been[1][gone])
        return found

    begin, end = np.array([job.request.arrival_s for job in ran]), np.array([job.end_s for job in ran])
    stay = np.maximum(end - begin, np.finfo(float).tiny)
    there = np.maximum((job_seconds(end) - job_seconds(begin)) / stay, 1.0)
    gpus = np.array([job.request.gpus for job in ran])
    fair: npt.NDArray[np.float64] = alone * np.maximum(1.0, gpus * there / count)
    return fair


def _idle(ran: Sequence[Ran], count: int, lasts: float, iteration_s: IterationTime) -> Idle:
    events: list[
        tuple[float, int, int]
    ] = []  # time, change of the GPUs in use, and the requested GPUs of a job that starts (negative: stops) waiting
    slowed = 0.0
    for job in ran:
        wanted, waits_from = job.request.gpus, job.request.arrival_s
        for stint in job.held:
            events += [(waits_from, 0, wanted), (stint.start_s, wanted, -wanted), (stint.end_s, -wanted, 0)]
            waits_from = stint.end_s
            spans = len({gpu.host for gpu in stint.gpus})
            useful = stint.iterations * iteration_s(job.request, spans)
            slowed += wanted * max(0.0, stint.end_s - stint.start_s - useful)
        if not job.held and waits_from < job.end_s:  # it never got any
            events += [(waits_from, 0, wanted), (job.end_s, 0, -wanted)]
    free, sums = count, {"fragment": 0.0, "waiting": 0.0, "no_job": 0.0}
    waiting = Counter[int]()  # number of waiting jobs by requested GPUs
    wants: list[int] = []  # the requested numbers of GPUs, ascending
    ordered = sorted(events)
    for (at, used, waits), following in itertools.zip_longest(ordered, ordered[1:]):
        free -= used
        if waits:
            wanted = abs(waits)
            waiting[wanted] += 1 if waits > 0 else -1
            if waits > 0 and waiting[wanted] == 1:
                bisect.insort(wants, wanted)
            elif not waiting[wanted]:
                wants.remove(wanted)
        until = following[0] if following else lasts
        cause = "no_job" if not wants else "waiting" if wants[0] <= free else "fragment"
        sums[cause] += free * (until - at)
    before = count * min((event[0] for event in events), default=lasts)
    return Idle(
        sums["fragment"] / HOUR_S, sums["waiting"] / HOUR_S, slowed / HOUR_S, (sums["no_job"] + before) / HOUR_S
    )

"""CASSINI: shift jobs that share a link in time so that their communication does not overlap.

S. Rajasekaran, M. Ghobadi, A. Akella. CASSINI: Network-Aware Job Scheduling in Machine Learning
Clusters. NSDI 2024, arXiv 2308.00852. Circles and their score are in `testbed.models.circle`, the
affinity graph in `testbed.schedulers.affinity`, a worker's use of its shift in `testbed.core.grid`.

Simplifications: the placement is given, so CASSINI's choice between placements becomes a yes or no. Every job is known
in advance. Its profile is its trace, stretched to the measured isolated iteration. Links shared by exactly the same
jobs (such as both directions of a cable) are one link with several capacities: they cannot contradict each other.

An addition of the testbed, because the paper leaves it open: the slots of jobs that do not fit (score below 1) are
farther apart by the excess demand. A job cannot keep slots without capacity; it would be late, and wait, in every
iteration.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from testbed.core.grid import Grid
from testbed.core.options import Fraction, Name, option
from testbed.models import circle
from testbed.schedulers import affinity
from testbed.schedulers.flow import Demand, Rule, ScheduleError, Sharing

KNOWS, CENTRAL = "all jobs and their placement", True
SLACK = 0.001


@dataclass(frozen=True)
class Options:
    over: str = option("reno", "congestion control; default reno", Name())
    # Kept as the number of steps that a circle has.
    step: int = option(circle.ANGLES, "rotation step in degrees; default 5 (published)", circle.angles)
    # A job that is a little slower than its slots would fall behind and, once 5 % late, wait for almost a whole
    # iteration; one that is a little faster waits for just that little.
    slack: float | None = option(
        None, "margin on the isolated iteration time; default 0.1 % plus twice its spread", Fraction()
    )


def share(jobs: Sequence[Demand], links: Mapping[str, float], options: Options) -> Sharing:
    """A grid for every job that shares a link; raises `ScheduleError` if the affinity graph has a loop."""
    step, slack = options.step, options.slack
    periods_s = []
    for index, job in enumerate(jobs):
        if job.phases is None:
            raise ScheduleError(
                f"CASSINI must know which job crosses which link, but a hash selects the paths of job {index} here "
                "(equal-cost multipath). Use a topology with single paths, or leave CASSINI out."
            )
        if job.iteration_s is None:
            raise ScheduleError(
                f"CASSINI must know the iterations of a job in advance, but job {index} is a real program. Record it (`mltcp record`)."
            )
        allowance_s = SLACK * job.iteration_s + 2 * job.spread_s if slack is None else slack * job.iteration_s
        periods_s.append(job.iteration_s + allowance_s)
    shared = _shared(jobs, links)
    graph = affinity.walk({name: members for name, (members, _) in shared.items()})
    times = [1] * len(jobs)
    for component in graph.components:
        perimeter_s, counts = circle.unify([periods_s[index] for index in component], step)
        for index, count in zip(component, counts, strict=True):
            periods_s[index], times[index] = perimeter_s / count, count
    fitted = {
        name: _fit({index: (jobs[index], periods_s[index], times[index]) for index in members}, capacities, step)
        for name, (members, capacities) in shared.items()
    }
    scores = {link: score for one in fitted.values() for link, score in one.scores.items()}
    if graph.loop:
        raise ScheduleError(_refusal(graph.loop, scores))
    shifts_s = affinity.shifts(graph, {name: one.shifts_s for name, one in fitted.items()}, periods_s)
    grids: dict[int, Grid] = {}
    for component in graph.components:
        wider = max(
            2 - score for one in fitted.values() if component[0] in one.shifts_s for score in one.scores.values()
        )
        for index in component:
            grids[index] = Grid(round(periods_s[index] * wider * 1e9), round(shifts_s[index] * wider * 1e9))
    return Sharing(
        tuple(Rule(options.over, grids.get(index)) for index in range(len(jobs))),
        {
            "scores": scores,
            "rotations_degrees": {name: one.degrees for name, one in fitted.items()},
            "periods_per_iteration": {
                str(i): round(g.period_ns / 1e9 / (jobs[i].iteration_s or 1), 6) for i, g in grids.items()
            },
        },
    )


def _shared(jobs: Sequence[Demand], links: Mapping[str, float]) -> dict[str, tuple[tuple[int, ...], dict[str, float]]]:
    """The shared links, by name: the jobs, and the links (with their capacity) these very jobs share."""
    by_members: dict[tuple[int, ...], dict[str, float]] = {}
    for link, capacity_bps in links.items():
        members = tuple(index for index, job in enumerate(jobs) if link in (job.phases or {}))
        if len(members) > 1:
            by_members.setdefault(members, {})[link] = capacity_bps
    return {" ".join(shared): (members, shared) for members, shared in by_members.items()}


@dataclass(frozen=True)
class _Fitted:
    """Jobs on the links they share: how well they fit there, and by how much each is to be delayed."""

    scores: dict[str, float]
    degrees: dict[str, float]  # on the unified circle; by job, as text: JSON has no other keys
    shifts_s: dict[int, float]


def _fit(on_circle: Mapping[int, tuple[Demand, float, int]], links: Mapping[str, float], angles: int) -> _Fitted:
    """``on_circle``: of each job its period in s and how often it is on the circle of all of its component."""
    common = math.gcd(*(times for _, _, times in on_circle.values()))
    demands = [
        np.stack(
            [circle.demand((job.phases or {})[link], links[link], period_s, times // common, angles) for link in links]
        )
        for job, period_s, times in on_circle.values()
    ]
    best = circle.fit(demands, [-(-angles * common // times) for _, _, times in on_circle.values()])
    total = np.sum([circle.turn(demand, by) for demand, by in zip(demands, best.rotations, strict=True)], axis=0)
    turned = dict(zip(on_circle, best.rotations, strict=True))
    return _Fitted(
        {link: round(circle.score(row), 9) for link, row in zip(links, total, strict=True)},
        {str(index): by * 360 / angles for index, by in turned.items()},
        # t_j = rotation * perimeter mod period (the paper's equation 5)
        {
            index: turned[index] / angles * period_s * (times // common) % period_s
            for index, (_, period_s, times) in on_circle.items()
        },
    )


def _refusal(loop: tuple[int | str, ...], scores: Mapping[str, float]) -> str:
    way = " – ".join(f"job {node}" if isinstance(node, int) else f"link {node}" for node in loop)
    return (
        f"CASSINI refuses this placement: its affinity graph has a loop ({way}), around which the links' time-shifts may "
        f"contradict each other. Compatibility of each link by itself: "
        f"{', '.join(f'{link} {score:.3f}' for link, score in scores.items())}. Place the jobs otherwise, or leave CASSINI out."
    )

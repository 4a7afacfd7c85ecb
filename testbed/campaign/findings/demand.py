"""Demand of an experiment's jobs on its network, by the baseline's first run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pandas as pd

from testbed.core.runs.findings import FewFrames, OfferedLoad, SharedAcks
from testbed.core.runs.load import Experiment, Run
from testbed.core.runs.measured import isolated_s
from testbed.core.runs.plan import Link
from testbed.models import bottleneck
from testbed.models.frames import frame

FULL = 1.005  # fraction of a link's rate: a load above it exceeds the capacity
ALIKE = 0.02  # relative difference below which values count as equal
MOST_MULTIPLE = 8  # largest multiple of the common divisor of periods


@dataclass(frozen=True)
class Demand:
    """The capacity that the jobs need, if known."""

    loads: tuple[OfferedLoad, ...] = ()  # of each bottleneck's busier direction, the highest first
    periods_s: tuple[float, ...] = ()  # each job's iteration in isolation; empty: unknown
    phases_s: tuple[float, ...] = ()  # communication per iteration, concurrent with computing or not; empty: unknown
    exposed_s: tuple[float, ...] = ()  # communication per iteration without concurrent computing; empty: unknown
    shares_link: bool | None = None  # whether flows of two jobs meet; None: unknown
    frames: FewFrames | None = None  # of the queue with the fewest frames for each flow; None: unknown, or no queue
    random_loss: float = 0.0  # of the worst wire
    acks: SharedAcks | None = None  # a link where ACKs wait behind data of the other direction; None: none, or unknown

    @property
    def most(self) -> float | None:
        """The highest load, as a share of the link's rate; None: unknown."""
        return self.loads[0].share if self.loads else None

    @property
    def overloads(self) -> tuple[OfferedLoad, ...]:
        """Links of which more is needed than they have."""
        return tuple(load for load in self.loads if load.share > FULL)


def compute_demand(experiment: Experiment) -> Demand:
    """Compute the demand of an experiment's jobs."""
    run = experiment.runs[0]
    crossed = bottleneck.crossings(run)
    return Demand(
        *_loads_and_times(experiment, run),
        None if crossed is None else any(len({job for job, _, _ in flows}) > 1 for flows in crossed.values()),
        None if crossed is None else _fewest_frames(run, crossed),
        max((wire.loss for wire in run.plan.wires.values()), default=0.0),
        None if run.manifest.clock == "model" else shared_acks(run),
    )


def _loads_and_times(
    experiment: Experiment, run: Run
) -> tuple[tuple[OfferedLoad, ...], tuple[float, ...], tuple[float, ...], tuple[float, ...]]:
    alone = isolated_s(experiment, run)
    periods = [
        job.ideal_s if job.ideal_s is not None else None if alone is None else float(alone[job.job]) for job in run.jobs
    ]
    known = [period for period in periods if period is not None]
    if len(known) < len(periods):
        return (), (), (), ()
    needs = bottleneck.needs(run, pd.Series(known, index=[job.job for job in run.jobs]))
    offered_loads: dict[frozenset[str], OfferedLoad] = {}
    for link, share in needs.items():
        both = frozenset(link.split("-"))  # directions of one link are one bottleneck
        if both not in offered_loads or share > offered_loads[both].share:
            offered_loads[both] = OfferedLoad(link, bottleneck.rate_bps(run, link), share)
    busy = bottleneck.busy_s(run)
    exposed = {
        job.job: max(0.0, job.ideal_s - job.compute_ns / 1e9)
        for job in run.jobs
        if job.ideal_s is not None and job.operations
    }
    if len(exposed) < len(run.jobs):
        exposed = {}
    phases = tuple(max(exposed_s, busy.get(job, 0.0)) for job, exposed_s in exposed.items())
    loads = tuple(sorted(offered_loads.values(), key=lambda load: -load.share))
    return loads, tuple(known), phases, tuple(exposed.values())


def _fewest_frames(run: Run, crossed: dict[str, set[bottleneck.Flow]]) -> FewFrames | None:
    size = frame(run.plan.link.mtu)
    links = {name: run.plan.bottlenecks[name] for name in crossed}
    found = [_frames(name, link, size, len(crossed[name])) for name, link in links.items() if link.queue is None]
    return min(found, key=lambda one: one.per_flow, default=None)


def _frames(name: str, link: Link, size: int, flows: int) -> FewFrames:
    if link.ecn_threshold is None:
        return FewFrames(name, "buffer", link.buffer_bytes / size, flows)
    return FewFrames(name, "ecn", link.ecn_threshold.max_bytes / size, flows)


def shared_acks(run: Run) -> SharedAcks | None:
    """Return the first bottleneck with data of several jobs in both directions, without an ACK queue; None if there is
    none."""
    crossed = bottleneck.crossings(run) or {}
    for name, flows in crossed.items():
        back = "-".join(reversed(name.split("-")))
        separate = run.plan.bottlenecks[name].acks_first
        if not separate and back in crossed and len({job for job, _, _ in flows | crossed[back]}) > 1:
            return SharedAcks(name)
    return None


def common_divisor(periods_s: Sequence[float]) -> float | None:
    """The longest time of which every period is a small multiple, to within 2 %; None: there is none."""
    for divided in range(1, MOST_MULTIPLE + 1):
        divisor = max(periods_s) / divided
        multiples = [period / divisor for period in periods_s]
        if all(round(each) and abs(each / round(each) - 1) <= ALIKE for each in multiples):
            return divisor
    return None

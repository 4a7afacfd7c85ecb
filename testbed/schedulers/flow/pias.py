"""PIAS: the flow with the fewest bytes sent in its iteration goes first, without flow sizes given beforehand (Bai et al., NSDI 2015).

A multi-level feedback queue: an iteration's first bytes travel in the highest band of strict priority, and it falls a band each time it
has sent so much more. Thresholds are those of `testbed.schedulers.flow.priority` the other way round: the largest job's iteration halved, and
halved again.

Simplified: what is one flow there is a worker's iteration here (where several messages are in flight, a tensor from one worker to another,
that falls by whole parts: `testbed.replay.bands.ByBand`); thresholds are not computed from a distribution of sizes; Reno by
default, where PIAS is DCTCP (``over=dctcp``) with a buffer that all bands share; here each band has a separate buffer.
All else is as in `testbed.schedulers.flow.priority`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from testbed.core.options import Name, option
from testbed.replay.bands import MOST
from testbed.schedulers.flow import Demand, Rule, ScheduleError, Sharing, priority

KNOWS, CENTRAL = "the largest iteration; priority queues in switches", False


@dataclass(frozen=True)
class Options:
    over: str = option("reno", "congestion control; default reno", Name())
    bands: int = option(MOST, f"number of priority queues; default {MOST}, the maximum", priority.BANDS)


def share(jobs: Sequence[Demand], links: Mapping[str, float], options: Options) -> Sharing:
    """The same thresholds for all."""
    for number, job in enumerate(jobs):
        if job.iteration_s is None:
            raise ScheduleError(
                f"PIAS counts the bytes of an iteration, but job {number} is a real program without known iterations. Use a trace."
            )
    largest = max(job.counted for job in jobs)
    thresholds = tuple(largest >> halved for halved in range(options.bands - 1, 0, -1))
    return Sharing(
        tuple(Rule(options.over, bands=thresholds, falls=True) for _ in jobs), {"sent_bytes": list(thresholds)}
    )

"""PIAS: the flow with the fewest bytes sent in its iteration goes first, without flow sizes given in advance (Bai et
al., NSDI 2015).

A multi-level feedback queue: an iteration's first bytes use the highest strict priority, and each threshold of sent
bytes lowers it by one. Thresholds are those of `testbed.schedulers.flow.priority` in reverse order: the largest job's
iteration halved, and halved again.

Simplifications: a flow of PIAS is a worker's iteration here. With concurrent messages it is a tensor from one worker to
another, whose complete parts change priority (`testbed.replay.bands.ByBand`). Thresholds are not computed from a
distribution of sizes. The base is Reno by default, while PIAS uses DCTCP (``over=dctcp``) with a buffer shared by all
queues; here each queue has a separate buffer. All other properties are those of `testbed.schedulers.flow.priority`.
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
    """Return the same thresholds for all jobs."""
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

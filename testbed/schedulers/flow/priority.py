"""Priority: the job with the least left to send in its iteration goes first, as under SRPT.

Strict-priority bands as in pFabric (M. Alizadeh et al. pFabric: Minimal Near-Optimal Datacenter Transport.
SIGCOMM 2013): the sender marks every packet by how much of the iteration is left (the class
selectors CS0 to CS7 of the IP header), and bottlenecks serve the highest band first. A job moves up each
time what it has left has halved; the first halving is of the largest job's iteration.

Simplified: eight bands instead of a priority per packet; each band has a separate buffer, where pFabric
drops the lowest priority from one; TCP instead of its minimal transport; packets of one band are served
in the order of arrival. What is marked is what is written to the socket, at most a socket's buffer ahead of
the wire. Pure ACKs travel in the highest band. Packets of a band that has just been reached overtake those
before them, which TCP sees as reordering. Where several messages are in flight, what counts is what is left of a tensor on its way from one
worker to another. Each of its parts stays in one band, and each band has a separate connection (`testbed.replay.bands.ByBand`), so that none
overtakes; hosts have these bands, too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from testbed.core.options import Integer, Name, option
from testbed.replay.bands import MOST
from testbed.schedulers.flow import Demand, Rule, ScheduleError, Sharing

KNOWS, CENTRAL = "bytes to send; priority queues in switches", True


BANDS = Integer(2, MOST)


@dataclass(frozen=True)
class Options:
    over: str = option("reno", "congestion control; default reno", Name())
    bands: int = option(MOST, f"number of priority queues; default {MOST}, the maximum", BANDS)


def share(jobs: Sequence[Demand], links: Mapping[str, float], options: Options) -> Sharing:
    """The same thresholds for all: the largest job's bytes halved, and halved again."""
    for number, job in enumerate(jobs):
        if job.iteration_s is None:
            raise ScheduleError(
                f"priority must know the remaining bytes of an iteration, but job {number} is a real program. Record it (`mltcp record`)."
            )
    largest = max(job.counted for job in jobs)
    thresholds = tuple(largest >> halved for halved in range(1, options.bands))
    return Sharing(tuple(Rule(options.over, bands=thresholds) for _ in jobs), {"remaining_bytes": list(thresholds)})

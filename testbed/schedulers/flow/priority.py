"""Priority: the job with the fewest remaining bytes in its iteration goes first, as under SRPT.

Strict-priority queues as in pFabric (M. Alizadeh et al. pFabric: Minimal Near-Optimal Datacenter Transport.
SIGCOMM 2013): the sender marks every packet by the remaining bytes of the iteration (the class
selectors CS0 to CS7 of the IP header), and bottlenecks serve the highest priority first. A job moves up each
time its remaining bytes have halved; the first halving is of the largest job's iteration.

Simplifications: eight queues instead of a priority per packet. Each queue has a separate buffer, while pFabric drops
the lowest priority from a common one. TCP replaces its minimal transport. Packets of one queue are served in the order
of arrival. Marks apply to data written to the socket, at most a socket's buffer ahead of the wire. Pure ACKs have the
highest priority. The first packets of a higher priority overtake earlier ones, which TCP sees as reordering. With
concurrent messages, the remaining bytes of a tensor between two workers count. Each of its parts keeps one priority,
and each priority has a separate connection (`testbed.replay.bands.ByBand`), which prevents reordering. Hosts have these
queues, too.
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
    """Return the same thresholds for all jobs: the largest job's bytes halved, and halved again."""
    for number, job in enumerate(jobs):
        if job.iteration_s is None:
            raise ScheduleError(
                f"priority must know the remaining bytes of an iteration, but job {number} is a real program. Record it (`mltcp record`)."
            )
    largest = max(job.counted for job in jobs)
    thresholds = tuple(largest >> halved for halved in range(1, options.bands))
    return Sharing(tuple(Rule(options.over, bands=thresholds) for _ in jobs), {"remaining_bytes": list(thresholds)})

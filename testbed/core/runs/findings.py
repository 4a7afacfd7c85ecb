"""The statements of a summary, as data: each statement is a separate type and holds the values that support it.

`testbed.campaign.findings` decides when each holds, `testbed.campaign.findings.answer` puts it into words. Times in seconds.
"""

from __future__ import annotations

from typing import Literal

import msgspec

Interval = tuple[float, float]  # at 95 %
Outcome = Literal["faster", "slower", "no difference", "inconclusive"]


class OneJob(msgspec.Struct, tag_field="finding", tag="one job", frozen=True):
    """Only one job uses the network."""


class OfferedLoad(msgspec.Struct, tag_field="finding", tag="offered load", frozen=True):
    """The jobs need more than the rate of a link, each at its ideal iteration time."""

    link: str  # one direction of a bottleneck: ``s1-s2``
    rate_bps: float
    share: float  # of its rate


class Periods(msgspec.Struct, tag_field="finding", tag="periods", frozen=True):
    """The phases cannot stay interleaved: the iteration times have no common divisor, or the phases do not fit in it."""

    periods_s: tuple[float, ...]  # by job
    divisor_s: float | None  # None: there is none
    phases_s: float  # of all jobs together


class NoSharedLink(msgspec.Struct, tag_field="finding", tag="no shared link", frozen=True):
    """No bottleneck carries flows of two jobs in one direction."""


class SmallShare(msgspec.Struct, tag_field="finding", tag="small share", frozen=True):
    """The jobs communicate so little that sharing can slow none of them down by more than ``most``."""

    most: float  # iteration time ÷ ideal if all phases overlap in full


class MostlyHidden(msgspec.Struct, tag_field="finding", tag="mostly hidden", frozen=True):
    """Most communication overlaps with computing, so that a delay of it rarely delays the next iteration."""

    phases_s: tuple[float, ...]  # by job
    exposed_s: tuple[float, ...]  # seconds of communication that computation does not hide


class AtIdeal(msgspec.Struct, tag_field="finding", tag="at ideal", frozen=True):
    """The baseline's last iterations take the ideal time already."""

    system: str
    ratio: float  # last iterations ÷ ideal


class BaseInterleaves(msgspec.Struct, tag_field="finding", tag="baseline interleaves", frozen=True):
    """The baseline's jobs interleave, too."""

    system: str
    at: float


class FewFrames(msgspec.Struct, tag_field="finding", tag="few frames", frozen=True):
    """The queue has so few frames for each flow that every congestion window is the least there is."""

    link: str
    threshold: Literal["ecn", "buffer"]
    frames: float
    flows: int

    @property
    def per_flow(self) -> float:
        """Frames for each flow."""
        return self.frames / self.flows


class SharedAcks(msgspec.Struct, tag_field="finding", tag="shared ACKs", frozen=True):
    """A bottleneck carries data in both directions, so ACKs wait in the queue behind data."""

    link: str  # one of its directions


class Timeouts(msgspec.Struct, tag_field="finding", tag="timeouts", frozen=True):
    """TCP waited for retransmission timeouts, which no congestion control shortens."""

    count: int
    least_s: float  # the minimum RTO
    share: float  # fraction of all iterations, if each timeout affected another one


class RandomLoss(msgspec.Struct, tag_field="finding", tag="random loss", frozen=True):
    """A wire loses packets at random, so that windows follow its loss and not the queue."""

    loss: float


class NoCoordination(msgspec.Struct, tag_field="finding", tag="no coordination", frozen=True):
    """Neither system has a notion of iterations, so that neither interleaves jobs by design."""

    system: str
    against: str


class OtherBase(msgspec.Struct, tag_field="finding", tag="other base", frozen=True):
    """No other cause is known, and MLTCP modifies a congestion control that is not the baseline."""

    base: str
    speedup: float | None  # of the base, to the baseline; None: no run has the base


class NoCauseKnown(msgspec.Struct, tag_field="finding", tag="no cause known", frozen=True):
    """None of the known causes applies."""


Reason = (
    OneJob
    | OfferedLoad
    | Periods
    | NoSharedLink
    | SmallShare
    | AtIdeal
    | MostlyHidden
    | BaseInterleaves
    | FewFrames
    | SharedAcks
    | Timeouts
    | RandomLoss
    | NoCoordination
    | OtherBase
    | NoCauseKnown
)


class Compared(msgspec.Struct, tag_field="finding", tag="compared", frozen=True):
    """Comparison of a system with the baseline; a system that is not faster has at least one reason."""

    outcome: Outcome
    against: str  # the baseline, as typed
    speedup: float
    interval: Interval | None  # None: fewer than three seeds
    seeds: int
    reasons: tuple[Reason, ...] = ()


class TooShort(msgspec.Struct, tag_field="finding", tag="too short", frozen=True):
    """Too few iterations with MLTCP active for a comparison."""

    against: str
    speedup: float
    iterations: int
    active_from: float | None  # None: in none of them
    needed: int  # iterations with MLTCP active


class Uneven(msgspec.Struct, tag_field="finding", tag="uneven", frozen=True):
    """The jobs gain differently."""

    speedups: dict[int, float]  # by job


class Interleaved(msgspec.Struct, tag_field="finding", tag="interleaved", frozen=True):
    """Every job stays within 5 % of its isolated time until the end of the run."""

    at: float | None  # the first such iteration, the median over seeds; None: not in half of them
    seeds: int  # number of seeds in which they interleave
    of: int


class NotInterleaved(msgspec.Struct, tag_field="finding", tag="not interleaved", frozen=True):
    """The jobs interleave in no seed, or for too few iterations."""

    iterations: int
    needed: int  # iterations in a row, up to the end


class InterleavingUnknown(msgspec.Struct, tag_field="finding", tag="interleaving unknown", frozen=True):
    """No isolated iteration time is available for comparison."""


class Active(msgspec.Struct, tag_field="finding", tag="mltcp active", frozen=True):
    """The first iteration with MLTCP active in every job that runs it."""

    at: float | None  # an iteration, the median over seeds; None: never


class Delivered(msgspec.Struct, tag_field="finding", tag="delivered", frozen=True):
    """Fraction of the gradients that arrived over a lossy transport."""

    share: float  # of bytes
    important_fraction: float | None  # fraction of packets tagged as important; None: no tags


Finding = Compared | TooShort | Uneven | Interleaved | NotInterleaved | InterleavingUnknown | Active | Delivered

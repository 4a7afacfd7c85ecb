"""OptiReduce's Unreliable Bounded Transport (Warraich et al., NSDI 2025), over UDP: a stage ends in time, with or without all data.

Sources: the abstract, the authors' pages, and a third party's summary of the full text. docs/reference/transports.md
labels each point. The time limit of a stage is measured: the first ``rounds`` arrive completely, and the ``percentile``
of their times (t_B) bounds every later one. Mostly a stage ends sooner: once the fraction ``tail`` has arrived, it ends
after the average time of a message (t_C) and ``wait`` times that, from its first packet.

Simplifications: ``tail`` replaces UBT's mark on a message's last packets (here the last one is sent first, with the
first). t_B is separate for each message, and measured over this transport itself, not over TCP. Lost data is sent again
while the stage lasts, after a round trip without an acknowledgement, while UBT sends once. The collective fixes the
incast (`transpose`: 1). If most of a message is missing, t_B becomes longer; no update is skipped, and no training is
halted. The rate control is TIMELY's, as in `testbed.transports.mlt`.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass
from statistics import fmean

from testbed.core.options import Fraction, Integer, Number, OneOf, option
from testbed.transports import Close, Listening, Place, Stage, mlt
from testbed.transports.datagram.endpoint import DatagramListening
from testbed.transports.datagram.settings import Core, SharedOptions

TITLE = "OptiReduce"
MOST_WAIT, WAIT_STEP = 0.5, 0.01  # fractions of t_C
MOST, LOST_MUCH, LOST_LITTLE = 0.5, 0.001, 0.0001  # fractions of a message


@dataclass(frozen=True)
class Options(SharedOptions):
    """The options of ``optireduce:``."""

    rounds: int = option(
        20,
        "initial lossless rounds that measure t_B; restated: 20 (default)",
        Integer(1, 10**6),
    )
    percentile: float = option(
        95.0, "percentile of their times that becomes t_B; restated: 95 (default)", Number(1, 100)
    )
    wait: float = option(
        0.1, "initial wait beyond t_C, as a fraction of t_C; doubles under heavy loss, up to 0.5; default 0.1", Fraction(0, MOST_WAIT),
    )  # fmt: skip
    tail: float = option(0.9, "fraction of a message required before t_C may end it; default 0.9", Fraction())
    broadcast: str = option(
        "bounded",
        "delivery of sums: bounded (lossy; default, restated) or whole",
        OneOf("bounded", "whole"),
    )
    acks: int = option(10, "packets per acknowledgement, at most; default 10", Integer(1, 10**6))

    @property
    def core(self) -> Core:
        """The settings of the endpoint."""
        return Core(
            mlt.ALL_FIRST, self.acks, self.rx_coalesce, self.peer_timeout, congestion=mlt.Options().core.congestion,
            timing=lambda: Bounds(self.rounds, self.percentile, self.wait),
        )  # fmt: skip


DATAGRAMS = True


def lossy(_options: Options) -> bool:
    """Return True: messages are counted one by one, even if all arrive completely."""
    return True


def listen(place: Place, options: Options) -> Listening:
    return DatagramListening(place, options)


def close(options: Options, stage: Stage) -> Close:
    """Time decides (`Bounds`); messages of a stage share its clock."""
    if stage == "parameter" and options.broadcast == "whole":
        return Close()
    return Close(fraction=options.tail, group="round")


class Bounds:
    """t_B and t_C of one message of a worker, adapted every round, in ns.

    t_B counts from the first packet of the stage, from any sender, and t_C from the message's own. After a message of
    which most is missing, t_B doubles. After a complete one, it halves, but never below the measured value: otherwise,
    after a permanent slowdown of the network, too little would be delivered for ever.
    """

    def __init__(self, rounds: int, percentile: float, wait: float) -> None:
        self.rounds, self.percentile, self.wait, self.least_wait = rounds, percentile, wait, wait
        self.bound_ns: int | None = None  # t_B
        self._measured_ns = 0
        self._took: list[int] = []
        self._own: deque[int] = deque(maxlen=rounds)

    @property
    def whole(self) -> bool:
        """Return True while t_B is measured, when messages must be complete."""
        return self.bound_ns is None

    @property
    def lt_ns(self) -> int | None:
        """t_C and the wait; no later than t_B."""
        if not self._own:
            return None
        soon = round(fmean(self._own) * (1 + self.wait))
        return soon if self.bound_ns is None else min(soon, self.bound_ns)

    @property
    def after_ns(self) -> int | None:
        """Return the time from LT to t_B, in ns."""
        return None if self.bound_ns is None else self.bound_ns - (self.lt_ns or 0)

    def heard(self, round: int, took_ns: int, own_ns: int, lost: float) -> None:
        """Record the end of a message: arrival of its last packet in ns since the stage's first packet, and its own
        first, and the missing fraction."""
        del round
        if self.bound_ns is None:
            self._took.append(took_ns)
            if len(self._took) == self.rounds:
                self._measured_ns = sorted(self._took)[math.ceil(self.percentile / 100 * self.rounds) - 1]
                self.bound_ns = self._measured_ns
        elif lost > MOST:
            self.bound_ns *= 2
        elif not lost:
            self.bound_ns = max(self._measured_ns, self.bound_ns // 2)
        if lost < 1:
            self._own.append(own_ns)
        if lost > LOST_MUCH:
            self.wait = min(MOST_WAIT, 2 * self.wait)
        elif lost < LOST_LITTLE:
            self.wait = max(self.least_wait, self.wait - WAIT_STEP)

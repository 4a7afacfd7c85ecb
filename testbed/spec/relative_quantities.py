"""What is asked of links and hosts relative to something else: text that is read once, when the spec is, and says more when that is known.

Each is the text as it was written (names of experiments and messages show it), and what it says of a rate, a buffer, an MTU.
"""

from __future__ import annotations

import re

from testbed.core.runs.plan import Burst, Marking
from testbed.core.text import quoted
from testbed.core.units import Duration, Rate, Share, Size, UnitError, Written
from testbed.models.frames import frame

SLOWEST_BPS, FASTEST_BPS = 1_000_000, 10**15
NEVER_FULL_BYTES = 1 << 30  # more than the sockets of a host hold
MOST_BANDS = 7  # of data: the eighth class selector is control


class QueueLength(Written):
    """``200p`` (frames), ``64kB``, or ``2ms`` at the rate of its link."""

    length: int | Size | Duration

    def read(self) -> None:
        if packets := re.fullmatch(r"(\d{1,7})p", self):
            self.length = int(packets[1])
            return
        if self.lstrip("0123456789.+-eE ").strip() in Duration.units:
            self.length = Duration.parse(self)
            return
        try:
            self.length = Size.parse(self)
        except UnitError as error:
            raise UnitError(f"{error}, or frames (200p), or a time at the link's rate (2ms)") from error

    def bytes(self, rate_bps: int, mtu: int) -> int:
        """How much waits at most."""
        if isinstance(self.length, Duration):
            return int(self.length) * rate_bps // (8 * 10**9)
        return int(self.length) if isinstance(self.length, Size) else self.length * frame(mtu)


class Offsets(Written):
    """When jobs start: ``overlapped`` or ``uniform`` (drawn from the seed), or a time for each of them (``0ms,50ms``)."""

    times: tuple[Duration, ...] = ()  # none: they are drawn

    def read(self) -> None:
        if self in ("overlapped", "uniform"):
            return
        try:
            self.times = tuple(map(Duration.parse, self.split(",")))
        except UnitError as error:
            raise UnitError(f"{error}; or overlapped, or uniform") from error


class Loss(Written):
    """``1%`` of all packets, or ``80%/0.1%/5%``: 80 % within bursts, which begin behind a packet with 0.1 % and end with 5 %."""

    value: float
    burst: Burst | None = None

    def read(self) -> None:
        share, *chances = self.split("/")
        self.value = Share(share).value
        if not 0 <= self.value < 1:
            raise UnitError(f"{quoted(self)} is not between 0% and 100%")
        if not chances:
            return
        if len(chances) != 2:
            raise UnitError(f"{quoted(self)} says no bursts: LOSS/BEGINS/ENDS, as in 80%/0.1%/5%")
        self.burst = Burst(*(Share(each).value for each in chances))
        if not self.burst.ends:
            raise UnitError(f"{quoted(self)} says bursts that never end")


class LinkRate(Written):
    """``500mbit``, or ``50%`` of another."""

    rate: Rate | float

    def read(self) -> None:
        share = re.fullmatch(r"(\d{1,9}(?:\.\d+)?)%", self)
        self.rate = float(share[1]) / 100 if share else Rate.parse(self)

    def of(self, whole_bps: int) -> int:
        """In bit/s; raises `UnitError` if nothing can be that slow, or fast."""
        rate = int(self.rate) if isinstance(self.rate, Rate) else round(whole_bps * self.rate)
        if not SLOWEST_BPS <= rate <= FASTEST_BPS:
            raise UnitError(f"{quoted(self)} makes {rate} bit/s; the slowest that can be emulated is 1mbit")
        return rate


class NicRate(LinkRate):
    """Or ``inf``: none of its own."""

    def read(self) -> None:
        if self != "inf":
            super().read()

    def or_none(self, whole_bps: int) -> int | None:
        """In bit/s; None: no NIC holds a sender up."""
        return None if self == "inf" else self.of(whole_bps)


class HostQueue(Written):
    """``pfifo_fast:20ms`` (or a size, or frames), ``fq``, which counts packets, or ``none``, which never drops."""

    length: QueueLength | None = None

    def read(self) -> None:
        name, _, length = self.partition(":")
        if name == "pfifo_fast" and length:
            self.length = QueueLength(length)
        elif self not in ("none", "fq"):
            raise UnitError(f"{quoted(self)} is none of fq, pfifo_fast:20ms (a time or a size), none")

    def bytes(self, nic_bps: int, mtu: int) -> int | None:
        """What waits before its interface at most; None: ``fq``."""
        if self.length is None:
            return None if self == "fq" else NEVER_FULL_BYTES
        return self.length.bytes(nic_bps, mtu)


class Marks(Written):
    """``MIN[,MAX[,PROBABILITY]]``, or ``on``: a step at a fifth of the buffer; or ``off``."""

    lowest: QueueLength | None = None
    highest: QueueLength | None = None
    probability: float = 1.0

    def read(self) -> None:
        if self in ("off", "on"):
            return
        lowest, *more = self.split(",")
        self.lowest = self.highest = QueueLength(lowest)
        if more:
            self.highest = QueueLength(more.pop(0))
        if more:
            self.probability = Share(more.pop(0)).value
        if more or not self.probability:
            raise UnitError(f"{quoted(self)} is no marking threshold; {_MARKS}")

    def of(self, rate_bps: int, buffer_bytes: int, mtu: int) -> Marking | None:
        """Of a link with this buffer; None: it drops. Raises `UnitError` if that does not hold them."""
        if self == "off":
            return None
        if self.lowest is None or self.highest is None:
            return Marking(buffer_bytes // 5, buffer_bytes // 5, 1.0)
        first, last = self.lowest.bytes(rate_bps, mtu), self.highest.bytes(rate_bps, mtu)
        if not 0 < first <= last <= buffer_bytes:
            raise UnitError(f"{quoted(self)} is no marking threshold of a buffer of {buffer_bytes} bytes; {_MARKS}")
        return Marking(first, last, self.probability)


_MARKS = "give `on`, `off`, one threshold (65kB, 200us, 40p), or MIN,MAX,PROBABILITY with MIN ≤ MAX ≤ buffer, as in 5kB,200kB,1%"


class Bands(Written):
    """``N``, ``N,drop`` or ``N,solved``: so many bands of data, which may drop what they cannot mark, or do so from thresholds by `testbed.models.thresholds`.

    ``1,apart``: one, and control above it, as all others have it.
    """

    data: int
    drops: bool
    solved: bool
    apart: bool  # there is a band for control

    def read(self) -> None:
        found = re.fullmatch(r"(\d)(,drop|,solved|,apart)?", self)
        if not found or not 1 <= int(found[1]) <= MOST_BANDS:
            raise UnitError(
                f"{quoted(self)} says no bands: give how many of data there are, 1 to {MOST_BANDS}, and `,drop` behind it if they "
                "drop what cannot be marked: 4,drop (4,solved: from the thresholds of MLT's appendix; 1,apart: one, and control above it)"
            )
        self.data, self.drops, self.solved = int(found[1]), found[2] in (",drop", ",solved"), found[2] == ",solved"
        self.apart = self.data > 1 or found[2] is not None

"""Quantities of links and hosts relative to another value: the text is parsed once, and resolved when the other value is known.

Each keeps its text as written, for names of experiments and messages, and resolves it for a rate, a buffer, or an MTU.
"""

from __future__ import annotations

import re
from typing import ClassVar

from testbed.core.runs.plan import Burst, EcnThreshold
from testbed.core.text import quoted
from testbed.core.units import Duration, Rate, Share, Size, UnitError, Written
from testbed.models.frames import frame

SLOWEST_BPS, FASTEST_BPS = 1_000_000, 10**15
NEVER_FULL_BYTES = 1 << 30  # more than the sockets of a host hold
MOST_QUEUES = 7  # of data: the eighth class selector is control


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
            raise UnitError(f"{str(error)[:-1]}, frames (200p), or a time at the link's rate (2ms).") from error

    def bytes(self, rate_bps: int, mtu: int) -> int:
        """Return the capacity in bytes, for a link rate in bit/s and an MTU in bytes."""
        if isinstance(self.length, Duration):
            return int(self.length) * rate_bps // (8 * 10**9)
        return int(self.length) if isinstance(self.length, Size) else self.length * frame(mtu)


class StartOffsets(Written):
    """Start times of jobs: ``clustered`` or ``uniform`` (sampled by the seed), or one time for each job
    (``0ms,50ms``)."""

    times: tuple[Duration, ...] = ()  # empty: sampled

    @classmethod
    def to_canonical(cls, text: str) -> str:
        return "clustered" if text == "overlapped" else text

    @classmethod
    def to_folder_form(cls, text: str) -> str:
        return "overlapped" if text == "clustered" else text

    def read(self) -> None:
        if self in ("clustered", "uniform"):
            return
        try:
            self.times = tuple(map(Duration.parse, self.split(",")))
        except UnitError as error:
            raise UnitError(f"{str(error)[:-1]}, clustered, or uniform.") from error


class Loss(Written):
    """``1%`` of all packets, or bursts as netem's ``gemodel`` has them: ``ge:loss=80%,p=0.1%,r=5%``.

    80 % are lost within a burst; one begins behind a packet with 0.1 % and ends with 5 %.
    """

    value: float
    burst: Burst | None = None

    @classmethod
    def to_canonical(cls, text: str) -> str:
        shares = text.split("/")
        return "ge:loss={},p={},r={}".format(*shares) if len(shares) == 3 else text

    @classmethod
    def to_folder_form(cls, text: str) -> str:
        shares = _burst(text)
        return "/".join(shares[name] for name in ("loss", "p", "r")) if shares.keys() == BURST else text

    def read(self) -> None:
        shares = _burst(self) if self.startswith("ge:") else {"loss": str(self)}
        if self.startswith("ge:") and shares.keys() != BURST:
            raise UnitError(
                f"{quoted(self)} does not describe bursts. Give loss, p and r, as in ge:loss=80%,p=0.1%,r=5%"
            )
        self.value = Share(shares["loss"]).value
        if not 0 <= self.value < 1:
            raise UnitError(f"{quoted(self)} is not between 0% and 100%")
        if len(shares) == 1:
            return
        self.burst = Burst(*(Share(shares[name]).value for name in ("p", "r")))
        if not self.burst.ends:
            raise UnitError(f"{quoted(self)} describes bursts that never end. Give an r above 0")


BURST = {"loss", "p", "r"}


def _burst(text: str) -> dict[str, str]:
    """The parameters of ``ge:``, each at most once; empty if one is repeated."""
    items = [item.partition("=") for item in text.removeprefix("ge:").split(",")]
    shares = {name: share for name, _, share in items}
    return shares if len(shares) == len(items) else {}


class LinkRate(Written):
    """``500mbit``, or ``50%`` of another."""

    rate: Rate | float

    def read(self) -> None:
        share = re.fullmatch(r"(\d{1,9}(?:\.\d+)?)%", self)
        self.rate = float(share[1]) / 100 if share else Rate.parse(self)

    def resolve(self, whole_bps: int) -> int:
        """Return the rate in bit/s, relative to ``whole_bps``.

        Raises `UnitError` if it is outside 1 Mbit/s to 1 Pbit/s.
        """
        rate = int(self.rate) if isinstance(self.rate, Rate) else round(whole_bps * self.rate)
        if not SLOWEST_BPS <= rate <= FASTEST_BPS:
            raise UnitError(f"{quoted(self)} is {rate} bit/s, but rates must be between 1 Mbit/s and 1 Pbit/s")
        return rate


class NicRate(LinkRate):
    """The rate of a NIC, relative or absolute, or ``inf``: unshaped."""

    def read(self) -> None:
        if self != "inf":
            super().read()

    def or_none(self, whole_bps: int) -> int | None:
        """Return the rate in bit/s; None for an unshaped NIC."""
        return None if self == "inf" else self.resolve(whole_bps)


class HostQueue(Written):
    """``pfifo_fast:20ms`` (or a size, or frames), ``fq``, which counts packets, or ``none``, which never drops."""

    length: QueueLength | None = None

    def read(self) -> None:
        name, _, length = self.partition(":")
        if name == "pfifo_fast" and length:
            self.length = QueueLength(length)
        elif self not in ("none", "fq"):
            raise UnitError(f"{quoted(self)} is not a host queue. Give fq, none, or pfifo_fast:20ms (a time or a size)")

    def bytes(self, nic_bps: int, mtu: int) -> int | None:
        """The maximum queue before its interface; None: ``fq``."""
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
            raise UnitError(f"{quoted(self)} is no ECN threshold. {_MARKS}")

    def resolve(self, rate_bps: int, buffer_bytes: int, mtu: int) -> EcnThreshold | None:
        """The marking threshold for a link with this buffer; None: a drop-tail link. Raises `UnitError` if the buffer cannot hold it."""
        if self == "off":
            return None
        if self.lowest is None or self.highest is None:
            return EcnThreshold(buffer_bytes // 5, buffer_bytes // 5, 1.0)
        first, last = self.lowest.bytes(rate_bps, mtu), self.highest.bytes(rate_bps, mtu)
        if not 0 < first <= last <= buffer_bytes:
            raise UnitError(f"{quoted(self)} is no ECN threshold of a buffer of {buffer_bytes} bytes. {_MARKS}")
        return EcnThreshold(first, last, self.probability)


_MARKS = "Give `on`, `off`, one threshold (65kB, 200us, 40p), or MIN,MAX,PROBABILITY with MIN ≤ MAX ≤ buffer, as in 5kB,200kB,1%"


class PriorityQueues(Written):
    """Priority queues of a bottleneck: ``N`` data queues, and above them one for control.

    ``N,drop-non-ect``: they drop packets that cannot be marked. ``N,mlt-thresholds``: thresholds of
    `testbed.models.thresholds`. ``1,separate-control``: one data queue below the control queue.
    """

    SUFFIXES: ClassVar = {
        "drop": "drop-non-ect",
        "solved": "mlt-thresholds",
        "apart": "separate-control",
    }  # old: canonical

    data: int
    drops: bool
    solved: bool
    apart: bool  # there is a queue for control

    @classmethod
    def to_canonical(cls, text: str) -> str:
        count, comma, suffix = text.partition(",")
        return count + comma + cls.SUFFIXES.get(suffix, suffix)

    @classmethod
    def to_folder_form(cls, text: str) -> str:
        count, comma, suffix = text.partition(",")
        return count + comma + next((old for old, new in cls.SUFFIXES.items() if new == suffix), suffix)

    def read(self) -> None:
        found = re.fullmatch(r"(\d)(?:,(drop-non-ect|mlt-thresholds|separate-control))?", self)
        if not found or not 1 <= int(found[1]) <= MOST_QUEUES:
            raise UnitError(
                f"{quoted(self)} does not describe priority queues. Give the number of data queues, 1 to {MOST_QUEUES}, as in 4. Variants: "
                "4,drop-non-ect (packets without ECN are dropped), 4,mlt-thresholds (thresholds of MLT's appendix), and "
                "1,separate-control (one data queue below a control queue)"
            )
        self.data, self.solved = int(found[1]), found[2] == "mlt-thresholds"
        self.drops = self.solved or found[2] == "drop-non-ect"
        self.apart = self.data > 1 or found[2] is not None

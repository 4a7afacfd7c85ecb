"""LTP, the loss-tolerant transmission protocol for parameter-server training (Chen et al., IWQoS 2023), over UDP.

Gradients may have missing ranges, because their receiver stops receiving early (`Close`); all other messages are
complete. docs/reference/transports.md labels what the paper's abstract publishes, and what others recall of it. Every
recalled number is an option.
"""

from __future__ import annotations

from dataclasses import dataclass

from testbed.core.options import Fraction, Integer, Number, OneOf, Time, option
from testbed.core.text import shown
from testbed.core.units import Duration
from testbed.transports import Buffer, Close, Importance, Message, Place, Span, Stage, Tag, Tagger
from testbed.transports.datagram.endpoint import DatagramListening
from testbed.transports.datagram.settings import FIRST_RTTS, Core, SharedOptions, progress

OWN, TCP = "ltp", "tcp"
RAISED = 1.5  # factor of LT after an epoch without a complete message; added by the testbed


def _broadcast(text: str) -> str:
    if text != OWN and text.partition(":")[0] != TCP:
        raise ValueError(f"{shown(text)} is neither ltp nor tcp nor tcp:CONGESTION_CONTROL")
    return text


def _maybe_duration(text: str) -> Duration | None:
    return None if text == "adapts" else Duration.parse(text)


@dataclass(frozen=True)
class Options(SharedOptions):
    """The options of ``ltp:``; recalled means: not confirmed by anything published."""

    fraction: float = option(0.8, "fraction of a gradient that suffices after LT; recalled; default 0.8", Fraction())
    tolerance: float = option(0.0, "fraction of a gradient that may be missing at any time; default 0", Fraction())
    lt: Duration | None = option(
        None,
        "loss-tolerance threshold LT, a time; adapts (default): initial_rtts × RTprop + bytes ÷ BtlBw, updated each epoch",
        _maybe_duration,
    )
    deadline_slack: Duration = option(
        Duration.parse("30ms"), "time from LT to the deadline; recalled; default 30ms", Time(), alias="c"
    )
    lt_clock: str = option(
        "per_worker",
        "start of LT: first packet of each worker (per_worker, default) or of the round (per_round)",
        OneOf("per_worker", "per_round", worker="per_worker", round="per_round"),
        alias="per",
    )
    initial_rtts: float = option(
        FIRST_RTTS, "RTprops in the first LT; recalled; default 1.5", Number(0, 100), alias="rtts"
    )
    lt_epoch_rounds: int = option(10, "rounds per LT epoch; default 10", Integer(1, 10**6), alias="epoch")
    lt_backoff: float = option(
        RAISED,
        "factor on LT after an epoch without a complete message; ours; default 1.5",
        Number(1, 100),
        alias="rise",
    )
    broadcast: str = option("ltp", "transport of parameters: ltp (default), tcp or tcp:CONGESTION_CONTROL", _broadcast)
    reorder: int = option(
        3, "later packets acknowledged before a packet counts as lost; recalled; default 3", Integer(1, 10**6)
    )
    acks: int = option(16, "packets per acknowledgement, at most; default 16", Integer(1, 10**6))
    f: tuple[float, float] | None = option(
        None, "SLOPE/OFFSET: MLTCP's F on bandwidth probing; off (default)", progress
    )  # fmt: skip

    @property
    def by_tcp(self) -> str | None:
        """The congestion control of parameters, if they travel by TCP; ``""``: the run's."""
        name, _, cc = self.broadcast.partition(":")
        return cc if name == TCP else None

    @property
    def core(self) -> Core:
        """The settings of the endpoint."""
        shared = self.lt_clock == "per_round"
        return Core(
            self.reorder,
            self.acks,
            self.rx_coalesce,
            self.peer_timeout,
            after=self.deadline_slack,
            shared_lt=shared,
            rtts=self.initial_rtts,
            f=self.f,
            timing=lambda: Threshold(
                self.lt_epoch_rounds, self.lt_backoff, after=int(self.deadline_slack), shared=shared
            ),
        )


TITLE = "LTP"
DATAGRAMS = True


def lossy(_options: Options) -> bool:
    """Return True: messages are counted one by one, even if all arrive completely."""
    return True


def close(options: Options, stage: Stage) -> Close:
    """Return the limits of the options for a gradient; a parameter must be complete."""
    if stage == "parameter":
        return Close()
    return Close(
        tolerance=options.tolerance,
        fraction=options.fraction,
        lt_s=None if options.lt is None else options.lt / 1e9,
        group="round",
    )


def tagger(m: Message) -> Tagger:
    """The band above all others for the critical spans of ``m``: the first and the last packet, and those it names."""
    spans = ((0, 1), (m.bytes - 1, 1), *m.critical)

    def tag(span: Span, _content: Buffer | Importance) -> Tag:
        begin, end = span[0], span[0] + span[1]
        return Tag(band=1) if any(begin < at + size and at < end for at, size in spans) else Tag(droppable=True)

    return tag


class Threshold:
    """LT of one message of a worker, adapted every epoch, in ns.

    LT is the shortest time in which the message was complete in the previous epoch, since its first packet (or, if
    ``shared``, the round's). The deadline is ``after_ns`` after the same time on the round's clock.

    As recalled, LT could only fall, and after a permanent slowdown of the network it would end every round early. Here
    it rises by half after an epoch without a complete message.
    """

    whole = False

    def __init__(self, epoch: int, rise: float = RAISED, *, after: int = 0, shared: bool = False) -> None:
        self.epoch, self.rise, self.after, self.shared = epoch, rise, after, shared
        self.lt_ns: int | None = None  # None: from the sender's measurements
        self.after_ns: int | None = None
        self._by_round = 0
        self._first: int | None = None  # round of the epoch
        self._whole: list[tuple[int, int]] = []  # since its own first packet, or as LT counts, and since the round's
        self._longest = (0, 0)

    def heard(self, round: int, took_ns: int, own_ns: int, lost: float) -> None:
        """A message of ``round`` ended after so long, by the round's clock and by its own."""
        if self._first is None:
            self._first = round
        if round >= self._first + self.epoch:
            self._adapt()
            self._first = round
        took = (took_ns if self.shared or lost == 1 else own_ns, took_ns)  # a message that never began has no clock
        if not lost:
            self._whole.append(took)
        self._longest = max(self._longest[0], took[0]), max(self._longest[1], took[1])

    def _adapt(self) -> None:
        if self._whole:
            own, by_round = (min(times) for times in zip(*self._whole, strict=True))
        else:
            own, by_round = self._longest if self.lt_ns is None else (self.lt_ns, self._by_round)
            own, by_round = int(own * self.rise), int(by_round * self.rise)
        self.lt_ns, self._by_round, self.after_ns = own, by_round, self.after + by_round - own
        self._whole, self._longest = [], (0, 0)


def listen(place: Place, options: Options) -> DatagramListening:
    return DatagramListening(place, options)

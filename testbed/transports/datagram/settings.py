"""The interface of a transport to the datagram endpoint: its settings, when it closes messages, and the common options."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from testbed.core.options import Number, Time, option
from testbed.core.text import shown
from testbed.core.units import Duration
from testbed.transports import Buffer, Message, Tagger, TransportOptions
from testbed.transports.datagram import native

FIRST_RTTS = 1.5  # RTprops in the first LT; recalled


def progress(text: str) -> tuple[float, float] | None:
    """Slope and offset of F, as ``f=`` has them (MLTCP, arXiv 2402.09589); None: off."""
    if text == "off":
        return None
    slope, slash, offset = text.partition("/")
    if not slash:
        raise ValueError(f"{shown(text)} is neither off nor SLOPE/OFFSET, as in 1.75/0.25")
    return Number(0.001, 4)(slope), Number(0, 4)(offset)


class Timing(Protocol):
    """The time limits of messages with one name, adapted to the times of earlier ones."""

    @property
    def whole(self) -> bool:
        """Everything arrives, however long it takes."""
        ...

    @property
    def lt_ns(self) -> int | None:
        """Return LT in ns since the message's first packet (or the round's, by `Core.shared_lt`); None: from the
        sender's measurements."""
        ...

    @property
    def after_ns(self) -> int | None:
        """The time from there to the deadline; None: as `Core.after` gives it."""
        ...

    def heard(self, round: int, took_ns: int, own_ns: int, lost: float) -> None:
        """Record the end of a message: its time in ns since the round's clock began, and its own, and its missing
        fraction."""
        ...


@dataclass(frozen=True)
class Core:
    """A transport's requirements for the endpoint and its core in C."""

    reorder: int  # later packets acknowledged, until one counts as lost
    acks: int  # packets that an acknowledgement waits for at most
    coalesce: Duration  # pause of a receiver after each read of its socket
    silence: Duration  # without a word of a peer, until it counts as gone
    after: Duration = Duration(0)  # from LT to the deadline
    shared_lt: bool = False  # LT counts from the first packet of the round, not from the message's own
    rtts: float = FIRST_RTTS  # first LT, in multiples of RTprop
    congestion: native.Congestion | None = None  # rate control; None: BBR, as in LTP
    # Slope and offset of how strongly it probes, or its rate grows by a rule; None: constant.
    f: tuple[float, float] | None = None
    control: int = 0  # class selector of control packets
    marked: bool = False  # packets of a message that may not be dropped are sent as markable (ECT, RFC 3168)
    sprays: bool = False  # over all of a host's addresses, if it has several
    tagger: Callable[[Message, Buffer | None, int], Tagger] | None = None  # where the caller has none
    # By message name; None: LT follows from the sender's measurements, the deadline from `after`.
    timing: Callable[[], Timing] | None = None


@dataclass(frozen=True)
class SharedOptions(TransportOptions):
    """Options that every transport over the datagram endpoint has."""

    rx_coalesce: Duration = option(
        Duration.parse("20us"),
        "receiver sleep between two socket reads; default 20us",
        Time(),
        alias="coalesce",
    )
    peer_timeout: Duration = option(
        Duration.parse("30s"),
        "silence of a peer before it counts as lost; default 30s",
        Time(),
        alias="silence",
    )


class DatagramOptions(Protocol):
    """Options of a transport that uses the datagram endpoint."""

    @property
    def core(self) -> Core:
        """The settings of the endpoint."""
        ...

    @property
    def by_tcp(self) -> str | None:
        """The congestion control of parameters, if they travel by TCP (empty: the job's own); None: they use datagrams."""
        ...

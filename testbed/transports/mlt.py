"""MLT, a domain-specific transport for training (Wang et al., NSDI 2024), over UDP: bounded loss, packet importance,
packet spraying.

A receiver accepts a message once at most a fraction p of it is missing, and sends STOP. Until then the sender repeats
all missing data, after it has sent everything once. The content of a packet decides its treatment: its layer selects
the priority queue of a switch, and its importance decides whether a filling switch may drop it (`tags`). Packets are
sprayed over all paths, because their order has no effect. docs/reference/transports.md lists what is published, what is
contradictory there, and what the testbed adds.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from testbed.core.options import Fraction, Integer, Number, OneOf, Time, option
from testbed.core.text import shown
from testbed.core.units import Duration
from testbed.transports import Close, Listening, Phase, Place, Stage, Tagger
from testbed.transports.datagram import native, tags
from testbed.transports.datagram.endpoint import DatagramListening
from testbed.transports.datagram.settings import Core, SharedOptions, progress

ALL_FIRST = 2**31  # reordering gives no information
DELAY, MARKS = 1, 2  # CONGESTION_DELAY, CONGESTION_ECN
RULES = {"timely": DELAY, "dctcp": MARKS}


SHARE = Fraction(below=1.0)


def _tolerance(text: str) -> float | Phase:
    """``10%``, or ``phase:40%/5%/100``: from the first round to the hundredth."""
    kind, colon, rest = text.partition(":")
    if not colon:
        return SHARE(text)
    first, last, rounds, *more = [*rest.split("/"), "", "", ""]
    if kind != "phase" or any(more) or not (rounds.isdecimal() and 1 <= int(rounds) <= 10**6):
        raise ValueError(
            f"{shown(text)} is no tolerance: give a share (10%), or phase:FIRST/LAST/ROUNDS, as in phase:40%/5%/100"
        )
    return Phase(SHARE(first), SHARE(last), int(rounds))


def _bands(text: str) -> str:
    if not re.fullmatch(r"[1-7]([,+](drop|solved|apart))?", text):
        raise ValueError(
            f"{shown(text)} is no number of bands, 1 to 7, with +drop or +solved behind it if they drop, or 1+apart"
        )
    return text.replace("+", ",")


def _spray(text: str) -> str:
    if not re.fullmatch(r"on|off|hashed:([2-9]|[1-5]\d|6[0-4])", text):
        raise ValueError(f"{shown(text)} is none of on, off and hashed:2 to hashed:64")
    return text


@dataclass(frozen=True)
class Options(SharedOptions):
    """The options of ``mlt:``; numbers that the paper gives are for 25 Gbit/s and 4 MB of switch memory."""

    tolerance: float | Phase = option(
        _tolerance("10%"),
        "fraction of a message that may be missing; published: 10% (default); or phase:40%/5%/100: from 40% to 5% over 100 rounds",
        _tolerance,
    )
    parameters: str = option(
        "lossy", "delivery of parameters: lossy (default, published) or whole (as FSDP needs)", OneOf("lossy", "whole"),
    )  # fmt: skip
    loss_bound: str = option(
        "per_hop", "scope of the tolerance in a ring: per_hop (default) or end_to_end", OneOf("per_hop", "end_to_end", hop="per_hop", end="end_to_end"), alias="ring")  # fmt: skip
    fill: str = option(
        "zero", "fill of a gradient's missing ranges: zero (default, published) or local (the previous value); parameters keep their values", OneOf("zero", "local", keep="local"), alias="missing")  # fmt: skip
    sync_every: int = option(
        0,
        "period, in rounds, of complete parameter delivery; 0: never (default, published)",
        Integer(0, 10**6),
        alias="resync",
    )
    rate: str = option("timely", "rate control: timely (by delay, default) or dctcp (by ECN marks)", OneOf(*RULES))
    t_low: Duration = option(
        Duration.parse("50us"),
        "T_low above the minimum RTT: the rate grows below it; default 50us",
        Time(),
        alias="low",
    )
    t_high: Duration = option(
        Duration.parse("250us"),
        "T_high above the minimum RTT: the rate falls above it; default 250us",
        Time(),
        alias="high",
    )
    on_conflict: str = option(
        "decrease",
        "rule for a shrinking delay above T_high, where both published rules match: decrease (default) or increase",
        OneOf("decrease", "increase"),
        alias="wins",
    )
    in_deadband: str = option(
        "hold",
        "rule for a growing delay between T_low and T_high, where none is published: hold (default) or gradient (TIMELY's)",
        OneOf("hold", "gradient"),
        alias="between",
    )
    step: float = option(
        0.04,
        "rate increase, as a fraction of the fastest delivery rate; published: 0.16% of the link; default 4%",
        SHARE,
    )
    beta: float = option(0.8, "rate decrease factor; published: 0.8 (default)", Fraction())
    initial_fraction: float = option(
        1.0,
        "first round trip's rate, in multiples of ten packets; published: line rate; default 1",
        Number(0.1, 1000),
        alias="first",
    )
    tag: str = option(
        "packet-median",
        f"rule for important packets: {', '.join(tags.RULES)}; default packet-median (ours)",
        OneOf(*tags.RULES),
    )
    bands: str = option(
        "4,drop",
        "priority queues; +drop: drop unimportant packets first; +solved: the appendix's thresholds; 1+apart: one data queue; 1: those of --priority-queues; default 4+drop",
        _bands,
    )
    spray: str = option(
        "on",
        "packet spraying: on (default), off, or hashed:64 (ECMP over 64 addresses per host)",
        _spray,
    )
    acks: int = option(
        10,
        "packets per acknowledgement, at most; published: 10 (default)",
        Integer(1, 10**6),
    )
    f: tuple[float, float] | None = option(
        None, "SLOPE/OFFSET: MLTCP's F on the rate increase; off (default)", progress
    )  # fmt: skip

    @property
    def sprays(self) -> bool:
        """Return True if it needs an address for each path."""
        return self.spray != "off"

    @property
    def hashes(self) -> int:
        """Or so many, over which routers hash; 0: one for each path."""
        return int(self.spray.partition(":")[2] or 0)

    @property
    def core(self) -> Core:
        """The settings of the endpoint."""
        count = int(self.bands[0])
        return Core(
            ALL_FIRST, self.acks, self.rx_coalesce, self.peer_timeout,
            congestion=native.Congestion(
                control=RULES[self.rate], step_permille=round(1000 * self.step), decrease_permille=round(1000 * self.beta),
                first_permille=round(1000 * self.initial_fraction), increase_wins=self.on_conflict == "increase",
                by_gradient=self.in_deadband == "gradient", low_ns=int(self.t_low), high_ns=int(self.t_high),
            ),
            control=count if self.bands != "1" else 0, marked=True, sprays=self.sprays, tagger=self.tagger, f=self.f,
        )  # fmt: skip

    @property
    def tagger(self) -> Callable[..., Tagger]:
        """Return the function that tags the packets of a message by its content."""
        return tags.Rule(self.tag, int(self.bands[0]), self.tolerance, self.parameters == "whole", self.sync_every)


TITLE = "MLT"
DATAGRAMS = True


def lossy(_options: Options) -> bool:
    """Return True: messages are counted one by one, even if all arrive completely."""
    return True


def listen(place: Place, options: Options) -> Listening:
    return DatagramListening(place, options)


def close(options: Options, stage: Stage) -> Close:
    """Return the limit: the tolerated fraction may be missing; missing ranges of a parameter keep their values."""
    if stage == "parameter":
        tolerance = options.tolerance if options.parameters == "lossy" else 0.0
        return Close(
            tolerance=tolerance,
            resync=options.sync_every,
            missing="keep",
            end_to_end=options.loss_bound == "end_to_end",
        )
    return Close(
        tolerance=options.tolerance,
        missing="zero" if options.fill == "zero" else "local",
        end_to_end=options.loss_bound == "end_to_end",
    )

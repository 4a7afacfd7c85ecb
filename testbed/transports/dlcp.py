"""DLCP, which MLT grew out of (2020): the same, but for a rate by marks, and parameters that tolerate less.

Of DLCP only the abstract was at hand, and what two readers of the full text write: DCTCP-like AIMD, and a lower bound for what is
pulled, because values are aggregates. How much lower is not known: here a tenth.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from testbed.core.options import Fraction, OneOf, option
from testbed.transports import Close, Phase, Stage, mlt
from testbed.transports.mlt import DATAGRAMS, RULES, listen, lossy

__all__ = ["DATAGRAMS", "TITLE", "Options", "close", "listen", "lossy"]
TITLE = "DLCP"
PULL = 0.1  # of the tolerance


@dataclass(frozen=True)
class Options(mlt.Options):
    """As `testbed.transports.mlt`, with other defaults."""

    rate: str = option("dctcp", "rate control: dctcp (by ECN marks, default) or timely (by delay)", OneOf(*RULES))
    beta: float = option(0.5, "rate decrease ÷ marked fraction; DCTCP: 0.5 (default)", Fraction())
    step: float = option(
        0.02, "rate increase per round trip, as a fraction of the fastest delivery rate; default 2%", mlt.SHARE
    )


def close(options: Options, stage: Stage) -> Close:
    """As MLT, with less tolerance for parameters."""
    found = mlt.close(options, stage)
    return replace(found, tolerance=_less(found.tolerance)) if stage == "parameter" else found


def _less(tolerance: float | Phase) -> float | Phase:
    if isinstance(tolerance, Phase):
        return Phase(PULL * tolerance.first, PULL * tolerance.last, tolerance.rounds)
    return PULL * tolerance

"""DLCP (2020), the predecessor of MLT: like MLT, but with a rate control by ECN marks and less tolerance for parameters.

Sources: DLCP's abstract, and two readers' summaries of the full text: DCTCP-like AIMD, and a lower bound for pulled
values, because they are aggregates. That bound is unknown; the default is a tenth.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from testbed.core.options import Fraction, OneOf, option
from testbed.transports import Close, Phase, Stage, mlt
from testbed.transports.mlt import DATAGRAMS, RULES, listen, lossy

__all__ = ["DATAGRAMS", "TITLE", "Options", "close", "listen", "lossy"]
TITLE = "DLCP"
PULL = 0.1  # fraction of the tolerance for pulled parameters


@dataclass(frozen=True)
class Options(mlt.Options):
    """The options of `testbed.transports.mlt`, with other defaults."""

    rate: str = option("dctcp", "rate control: dctcp (by ECN marks, default) or timely (by delay)", OneOf(*RULES))
    beta: float = option(0.5, "rate decrease ÷ marked fraction; DCTCP: 0.5 (default)", Fraction())
    step: float = option(
        0.02, "rate increase per round trip, as a fraction of the fastest delivery rate; default 2%", mlt.SHARE
    )


def close(options: Options, stage: Stage) -> Close:
    """Return the limits of MLT, with less tolerance for parameters."""
    found = mlt.close(options, stage)
    return replace(found, tolerance=_less(found.tolerance)) if stage == "parameter" else found


def _less(tolerance: float | Phase) -> float | Phase:
    if isinstance(tolerance, Phase):
        return Phase(PULL * tolerance.first, PULL * tolerance.last, tolerance.rounds)
    return PULL * tolerance

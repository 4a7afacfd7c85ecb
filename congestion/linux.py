"""The kernel's own: what Linux has, if its configuration says so; anything else was misspelt."""

from __future__ import annotations

from congestion.family import Family
from core.runs.plan import Traits

_BY_DELAY = Traits(may_leave_idle=True)  # or by a rate that they measure

FAMILIES = (
    *(Family(name) for name in (
        "reno", "cubic", "westwood", "htcp", "bic", "hybla", "highspeed", "illinois", "scalable", "veno", "yeah",
    )),
    *(Family(name, traits=_BY_DELAY) for name in ("bbr", "vegas", "nv", "lp", "cdg")),
    Family("dctcp", traits=Traits(needs_marks=True)),
)  # fmt: skip

"""The kernel's own: what Linux has, if its configuration says so; anything else was misspelt."""

from __future__ import annotations

from testbed.congestion.family import Family
from testbed.core.runs.plan import Traits

_BY_DELAY = Traits(may_leave_idle=True)  # or by a rate that they measure

FAMILIES = (
    Family("reno", title="Reno"),
    Family("cubic", title="CUBIC"),
    *(Family(name) for name in (
        "westwood", "htcp", "bic", "hybla", "highspeed", "illinois", "scalable", "veno", "yeah",
    )),
    *(Family(name, traits=_BY_DELAY) for name in ("vegas", "nv", "lp", "cdg")),
    Family("bbr", traits=_BY_DELAY, title="BBR"),
    Family("dctcp", traits=Traits(needs_marks=True), title="DCTCP"),
)  # fmt: skip

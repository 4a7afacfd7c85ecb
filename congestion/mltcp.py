"""MLTCP: the increase of its base is multiplied by F(bytes sent ÷ bytes of an iteration) (arXiv 2402.09589)."""

from __future__ import annotations

from congestion.curves import CURVES, ONE
from congestion.family import Family, Parameter, fraction, microseconds
from core.runs.plan import Traits
from core.text import quoted
from core.units import Size


def _curve(text: str) -> int:
    if text not in CURVES:
        raise ValueError(f"{quoted(text)} is not one of {', '.join(CURVES)}")
    return CURVES.index(text)


def parameters(slope: str = "1.75", intercept: str = "0.25") -> tuple[Parameter, ...]:
    """Those of every MLTCP, with the defaults of this one's F."""
    return (
        Parameter("slope", "slope", "S of F(r) = S r + I", fraction, -16 * ONE, 16 * ONE, slope),
        Parameter("intercept", "intercept", "I of F(r) = S r + I", fraction, 0, 16 * ONE, intercept),
        Parameter("curve", "curve", f"shape of F: {', '.join(CURVES)}", _curve, 0, len(CURVES) - 1, "linear"),
        Parameter(
            "gap_factor", "gap_factor", "share of the longest recent gap that ends an iteration",
            fraction, ONE // 16, ONE, "0.5",
        ),
        Parameter("first_gap", "first_gap_us", "shortest gap that can end an iteration", microseconds, 1, 10**7, "1ms"),
        Parameter(
            "total_bytes", "total_bytes", "bytes one flow sends per iteration; 0B: learn it",
            lambda text: int(Size.parse(text)), 0, 1 << 54, "0B",
        ),
    )  # fmt: skip


STATE = "mltcp_flows"  # the eBPF map that holds what a flow knows of its iteration

FAMILIES = (
    Family("mltcp_reno", "treatment", "reno", Traits(learns=True, state=STATE), parameters(), title="MLTCP-Reno"),
    Family("mltcp_cubic", "treatment", "cubic", Traits(learns=True, state=STATE), parameters(), title="MLTCP-CUBIC"),
    Family(
        "mltcp_dctcp",
        "treatment",
        "dctcp",
        Traits(needs_marks=True, learns=True, state=STATE),
        parameters(),
        title="MLTCP-DCTCP",
    ),
)

"""MLTCP: the increase of its base is multiplied by F(bytes sent ÷ bytes of an iteration) (arXiv 2402.09589)."""

from __future__ import annotations

from testbed.congestion.curves import CURVES, ONE
from testbed.congestion.family import Family, Parameter, Preset, fraction, microseconds
from testbed.core.options import Bytes, Integer, Position
from testbed.core.runs.plan import Traits

LEARN = ("second", "first")
RATIOS = ("iteration", "log")
SHARED_BY = ("off", "so_mark")
HINTS = ("off", "notsent_lowat")
RESTARTS = ("off", "sqrt", "inflight", "ten")
APPLY = ("increase", "decrease", "both")


def parameters(slope: str = "1.75", intercept: str = "0.25") -> tuple[Parameter, ...]:
    """The parameters of every MLTCP, with the defaults of this one's F."""
    return (
        Parameter("slope", "slope", "S of F(r) = S r + I", fraction, -16 * ONE, 16 * ONE, slope),
        Parameter("intercept", "intercept", "I of F(r) = S r + I", fraction, 0, 16 * ONE, intercept),
        Parameter("curve", "curve", f"shape of F: {', '.join(CURVES)}", Position(*CURVES), 0, len(CURVES) - 1, "linear"),
        Parameter(
            "gap_factor", "gap_factor", "share of the longest recent gap that ends an iteration",
            fraction, ONE // 16, ONE, "0.5",
        ),
        Parameter("first_gap", "first_gap_us", "shortest gap that can end an iteration", microseconds, 1, 10**7, "1ms"),
        Parameter(
            "total_bytes", "total_bytes", "bytes one flow sends per iteration; 0B: learn it",
            Bytes(), 0, 1 << 54, "0B",
        ),
        Parameter("learn", "learn", f"which interval is learned from first: {', '.join(LEARN)}", Position(*LEARN), 0, 1, "second"),
        Parameter(
            "ratio", "ratio", f"r: share of an iteration, or logarithm of the bytes sent: {', '.join(RATIOS)}",
            Position(*RATIOS), 0, 1, "iteration",
        ),
        Parameter(
            "shared_by", "share", "sockets with one r: each its own, or all with the same SO_MARK: " + ", ".join(SHARED_BY),
            Position(*SHARED_BY, mark="so_mark"), 0, 1, "off", "share",
        ),
        Parameter(
            "bytes_hint", "given", f"how an application says total_bytes of its socket: {', '.join(HINTS)} (TCP_NOTSENT_LOWAT)",
            Position(*HINTS, lowat="notsent_lowat"), 0, 1, "off", "given",
        ),
    )  # fmt: skip


# Parameters of window-based controls; a rate-based one does not have them.
WINDOW = (
    Parameter(
        "restart", "restart", f"the window where an iteration begins: {', '.join(RESTARTS)}",
        Position(*RESTARTS), 0, len(RESTARTS) - 1, "off",
    ),
    Parameter(
        "host_limit", "host_limit", "no growth while half of what is in flight waits in its own host: off, on",
        Position("off", "on"), 0, 1, "off",
    ),
    Parameter(
        "f_floor_cwnd", "floor_cwnd", "segments of window below which F is at least 1 while nothing was marked; 0: none",
        Integer(0, 1000), 0, 1000, "0", "floor",
    ),
    Parameter("f_applies_to", "apply", f"what F acts on: {', '.join(APPLY)}", Position(*APPLY), 0, len(APPLY) - 1, "increase", "apply"),
)  # fmt: skip
# `placebo`: the rules that `recommended` adds, with F = 1 at every r, to 0.1 %. Its gain is not due to F.
# `author`: the authors' public simulator. Its boundary, 0.9 of the longest compute phase, is here a share of the longest recent gap.
RECOMMENDED = {"restart": "sqrt", "host_limit": "on", "f_floor_cwnd": "10"}
ALMOST_CONSTANT_F = {
    "slope": "0.001",
    "intercept": "1",
}  # with a slope of 0, MLTCP learns no iteration, and the rules of `recommended` have no effect
PRESETS = {
    "paper": Preset({}),
    "author": Preset({"slope": "4", "intercept": "0.25", "gap_factor": "0.9", "restart": "ten"}, asks="total_bytes"),
    "recommended": Preset(RECOMMENDED),
    "placebo": Preset({**RECOMMENDED, **ALMOST_CONSTANT_F}),
}
STATE = "mltcp_flows"  # the eBPF map that holds a flow's state of its iteration


def _on(base: str, title: str, *, needs_marks: bool = False) -> Family:
    traits = Traits(needs_marks=needs_marks, learns=True, state=STATE)
    return Family(
        f"mltcp_{base}", "treatment", base, traits, (*parameters(), *WINDOW), presets=PRESETS, title=f"MLTCP-{title}"
    )


FAMILIES = (_on("reno", "Reno"), _on("cubic", "CUBIC"), _on("dctcp", "DCTCP", needs_marks=True))

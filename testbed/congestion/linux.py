"""The built-in congestion controls of Linux, if its configuration has them; any other name is misspelt.

Their parameters are those of the kernel's modules (``net/ipv4/tcp_NAME.c``). All connections of a kernel share them, so a
run sets them in a separate kernel (``--on uml``), when it boots. Those of Illinois are missing: no file shows them, so they cannot be read back.
"""

from __future__ import annotations

from collections.abc import Callable

from testbed.congestion.curves import ONE
from testbed.congestion.family import Family, Multiple, Parameter, fraction, microseconds
from testbed.core.options import Boolean, Integer
from testbed.core.runs.plan import Traits
from testbed.core.units import Duration

_BY_DELAY = Traits(may_leave_idle=True)  # or by a rate that they measure


def _number(name: str, meaning: str, low: int, high: int, default: int) -> Parameter:
    return Parameter(name, name, meaning, Integer(low, high), low, high, str(default))


def _share(name: str, meaning: str, default: str, low: int = 1, high: int = ONE - 1) -> Parameter:
    return Parameter(name, name, meaning, fraction, low, high, default)


def _switch(name: str, meaning: str, default: str) -> Parameter:
    return Parameter(name, name, meaning, lambda text: int(Boolean()(text)), 0, 1, default)


def _time(name: str, meaning: str, read: Callable[[str], int], default: str) -> Parameter:
    return Parameter(name, name, meaning, read, 1, 10**7, default)


_milliseconds = Multiple(Duration(10**6))

_CUBIC = (
    _share("beta", "share of the window that a loss leaves", "0.7"),
    _switch("fast_convergence", "whether a flow that lost twice gives way", "on"),
    _number("bic_scale", "C of the cubic function, in 10/1024", 1, 1000, 41),
    _switch("tcp_friendliness", "whether the window is at least Reno's", "on"),
    _switch("hystart", "whether slow start ends before a loss (HyStart)", "on"),
    _number("hystart_detect", "what ends it: 1 trains of ACKs, 2 delay, 3 both", 1, 3, 3),
    _number("hystart_low_window", "segments of window from which HyStart acts", 0, 65535, 16),
    _time("hystart_ack_delta_us", "gap between ACKs of a train", microseconds, "2ms"),
)
_BIC = (
    _share("beta", "share of the window that a loss leaves", "0.8"),
    _switch("fast_convergence", "whether a flow that lost twice gives way", "on"),
    _number("max_increment", "segments per round trip of the linear increase", 1, 1000, 16),
    _number("low_window", "segments of window below which it is Reno", 0, 65535, 14),
    _number("smooth_part", "log2 of the steps near the last maximum", 1, 100, 20),
)
_VEGAS = (
    _number("alpha", "segments in queues below which the window grows", 0, 1000, 2),
    _number("beta", "segments in queues above which the window shrinks", 0, 1000, 4),
    _number("gamma", "segments in queues that end slow start", 0, 1000, 1),
)
_DCTCP = (
    _number("dctcp_shift_g", "gain of alpha, as 1/2^N", 0, 10, 4),
    _number("dctcp_alpha_on_init", "alpha at the start, in 1/1024", 0, 1024, 1024),
)
_HTCP = (
    _switch("use_rtt_scaling", "whether the increase is scaled with the round trip", "on"),
    _switch("use_bandwidth_switch", "whether the backoff follows the bandwidth", "on"),
)
_HYBLA = (_time("rtt0", "reference round trip", _milliseconds, "25ms"),)
_CDG = (
    _number("window", "samples of the gradient's moving average", 1, 256, 8),
    _share("backoff_beta", "share of the window that a backoff leaves", "0.7071", 1, ONE),
    _number("backoff_factor", "gradient at which a backoff has probability 1 - 1/e", 1, 1000, 42),
    _number("hystart_detect", "what ends slow start: 1 trains of ACKs, 2 delay, 3 both, 0 a loss", 0, 3, 3),
    _number("use_ineff", "backoffs without effect that are tolerated, 0: all", 0, 1000, 5),
    _switch("use_shadow", "whether a shadow window keeps what backoffs take", "on"),
    _switch("use_tolerance", "whether losses without a full queue are tolerated", "off"),
)
_NV = (
    _number("nv_pad", "segments in queues that are aimed at", 0, 1000, 10),
    _number("nv_reset_period", "seconds until the smallest round trip is measured again", 1, 1000, 5),
    _number("nv_min_cwnd", "smallest window, in segments", 1, 1000, 2),
    _number("nv_loss_dec_factor", "share of the window that a loss leaves, in 1/1024", 1, 1024, 819),
)

FAMILIES = (
    Family("reno", title="Reno"),
    Family("cubic", parameters=_CUBIC, title="CUBIC"),
    Family("htcp", parameters=_HTCP),
    Family("bic", parameters=_BIC),
    Family("hybla", parameters=_HYBLA),
    *(Family(name) for name in ("illinois", "westwood", "highspeed", "scalable", "veno", "yeah")),
    Family("vegas", parameters=_VEGAS, traits=_BY_DELAY),
    Family("nv", parameters=_NV, traits=_BY_DELAY),
    Family("cdg", parameters=_CDG, traits=_BY_DELAY),
    Family("lp", traits=_BY_DELAY),
    Family("bbr", traits=_BY_DELAY, title="BBR"),
    Family("dctcp", parameters=_DCTCP, traits=Traits(needs_marks=True), title="DCTCP"),
)

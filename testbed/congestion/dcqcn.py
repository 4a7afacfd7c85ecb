"""DCQCN (SIGCOMM 2015) as a TCP congestion control, in isolation and under MLTCP: it paces at a computed rate."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from testbed.congestion import mltcp
from testbed.congestion.curves import ONE
from testbed.congestion.family import Family, Multiple, Parameter, Preset, fraction, microseconds
from testbed.core.options import Bytes, Integer
from testbed.core.runs.plan import Traits
from testbed.core.units import Rate

PUBLISHED_BPS = 40 * 10**9  # link rate that its constants are published for


_kbps, _mbps = Multiple(Rate(10**3)), Multiple(Rate(10**6))
PARAMETERS = (
    Parameter(
        "line_rate", "line_rate", "where flows begin", _mbps, 1, 10**6,
        "the bottleneck's",
    ),
    Parameter("r_ai", "r_ai", "R_AI, step of additive increase", _kbps, 1, 10**8, "40mbit, scaled"),
    Parameter("r_hai", "r_hai", "R_HAI, step of hyper increase", _kbps, 1, 10**8, "400mbit, scaled"),
    Parameter("g", "g", "gain of alpha", fraction, 1, ONE // 2, "0.0039 (1/256)"),
    Parameter("cnp_interval", "cnp_interval", "N, least time between CNPs", microseconds, 1, 10**6, "50us"),
    Parameter("alpha_timer", "alpha_timer", "K, time without a CNP until alpha decays", microseconds, 1, 10**6, "55us"),
    Parameter("rate_timer", "rate_timer", "T, time until the rate increases", microseconds, 1, 10**6, "55us"),
    Parameter("fast_recovery", "fast_recovery", "F, increases of fast recovery", Integer(1, 100), 1, 100, "5"),
    Parameter(
        "byte_counter", "byte_counter", "B, bytes until the rate increases",
        Bytes(), 1000, 1 << 40, "10MB, scaled",
    ),
)  # fmt: skip


def scaled_to(rate_bps: int) -> Mapping[str, int]:
    """Return DCQCN's constants for a bottleneck of ``rate_bps``.

    The published ones are for 40 Gbit/s or more. Below, increase steps, byte counter and initial rate are scaled with
    the rate.
    """
    share = min(1.0, rate_bps / PUBLISHED_BPS)
    r_ai = max(1, round(40_000 * share))
    return {
        "line_rate": max(1, rate_bps // 10**6), "r_ai": r_ai, "r_hai": 10 * r_ai,
        "byte_counter": max(1000, round(10**7 * share)),
    }  # fmt: skip


# Defaults of adapters, independent of their rate. Gain and timer of alpha and the interval of reductions as NVIDIA's page of
# DCQCN's parameters has them (dce_tcp_g 1019, dce_tcp_rtt 1, rate_reduce_monitor_period 4); the others recalled, not confirmed
# (rpg_ai_rate 5, rpg_hai_rate 50, rpg_time_reset 300, rpg_byte_reset 32767, rpg_threshold 1).
ADAPTER = Preset({
    "g": "0.0049", "alpha_timer": "1us", "cnp_interval": "4us", "r_ai": "5mbit", "r_hai": "50mbit", "rate_timer": "300us",
    "byte_counter": "32767B", "fast_recovery": "1",
})  # fmt: skip
PRESETS = {"paper": Preset({}), "adapter": ADAPTER}

TRAITS = Traits(needs_marks=True, frame_by_frame=True, paced=True)

FAMILIES = (
    Family("dcqcn", traits=TRAITS, parameters=PARAMETERS, scaled_to=scaled_to, presets=PRESETS, title="DCQCN"),
    Family(
        "mltcp_dcqcn", "treatment", "dcqcn", msgspec.structs.replace(TRAITS, learns=True, state=mltcp.STATE),
        (*mltcp.parameters("1.067", "0.267"), *PARAMETERS), scaled_to,
        {**PRESETS, "recommended": PRESETS["paper"], "placebo": Preset(mltcp.ALMOST_CONSTANT_F)}, "MLTCP-DCQCN",
    ),
)  # fmt: skip

"""F as ``kernel/mltcp.h`` computes it, for flows whose eBPF program does not report it.

Standard library only: the sampler uses it for every flow and sample.
"""

from __future__ import annotations

from collections.abc import Mapping

ONE = 1024  # fractions travel to the kernel in units of 1/1024
CURVES = ("linear", "quadratic", "reciprocal", "concave", "falling", "falling_reciprocal")
SLOPE, INTERCEPT = 1792, 256  # of F: 1.75 and 0.25, recalled from the paper, not confirmed
LEAST, MOST = 16, 64 * ONE
LOG_FIRST, LOG_SPAN = 14, 17  # powers of two of the r without learning: from 16 KiB to 2 GiB
_, QUADRATIC, RECIPROCAL, CONCAVE, FALLING, FALLING_RECIPROCAL = range(len(CURVES))


def factor(parameters: Mapping[str, int], ratio: int) -> int:
    """``mltcp_factor``: F in 1/1024 at r = ``ratio``/1024 (negative: not known yet)."""
    if ratio < 0:
        return ONE
    slope, low, curve = (parameters[key] for key in ("slope", "intercept", "curve"))
    high = low + slope
    r = ONE - ratio if curve >= FALLING else ratio
    if curve in (RECIPROCAL, FALLING_RECIPROCAL):
        below = high * ONE - slope * r
        if low * high <= 0 or below <= 0:
            return LEAST
        f = low * high * ONE // below
    else:
        if curve == QUADRATIC:
            r = r * r >> 10
        elif curve == CONCAVE:
            r = 2 * r - (r * r >> 10)
        f = (slope * r >> 10) + low
    return max(LEAST, min(MOST, f))


def log_ratio(sent: int) -> int:
    """Return ``mltcp_log_ratio`` of ``sent`` bytes: the r, in 1/1024, of a flow that does not learn its iteration's
    bytes."""
    log = (sent + (1 << LOG_FIRST)).bit_length() - 1
    if log >= LOG_FIRST + LOG_SPAN:
        return ONE
    part = (sent + (1 << LOG_FIRST)) >> (log - 10) & (ONE - 1)
    part += part * (ONE - part) * 355 >> 20
    return ((log - LOG_FIRST << 10) + part) // LOG_SPAN

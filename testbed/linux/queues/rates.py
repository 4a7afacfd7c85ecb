"""Rates and buckets as the kernel keeps them: rates in bytes a second, buckets as times in ticks of 64 ns."""

from __future__ import annotations

import struct

from testbed.models.frames import frame

TICK_NS = 64
LINKLAYER_ETHERNET = 1  # lets the kernel compute transmission times itself, without a rate table
# struct tc_ratespec: cell_log, linklayer, overhead, cell_align, mpu, rate
RATESPEC = struct.Struct("=BBHhHI")
U32 = 0xFFFFFFFF


def ratespec(bytes_per_s: int) -> bytes:
    """The kernel's ``struct tc_ratespec`` of a rate in bytes/s; 0: no rate."""
    return RATESPEC.pack(0, LINKLAYER_ETHERNET if bytes_per_s else 0, 0, 0, 0, min(bytes_per_s, U32))


def ticks(size: int, bytes_per_s: int) -> int:
    """Return the time of ``size`` bytes in ns, as the kernel computes it: by a multiplication and a shift
    (``psched_l2t_ns``)."""
    factor, shift = 10**9, 0
    while True:
        multiplier = factor // bytes_per_s
        if multiplier & (1 << 31) or factor & (1 << 63):
            break
        factor <<= 1
        shift += 1
    return (size * multiplier >> shift) // TICK_NS


def bucket_bytes(rate_bps: int, mtu: int, *, real_time: bool) -> int:
    """The smallest bucket that holds the rate: two frames, or 250 us of a real, jittery clock."""
    two_frames = 2 * frame(mtu)
    return max(two_frames, rate_bps // 8 // 4000) if real_time else two_frames

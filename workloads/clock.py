"""Sleeping until an absolute instant of the monotonic clock, as exactly as the kernel can."""

from __future__ import annotations

import ctypes
import time

TIMER_ABSTIME = 1
EINTR = 4
_libc = ctypes.CDLL(None)


class _Timespec(ctypes.Structure):
    _fields_ = (("seconds", ctypes.c_long), ("nanoseconds", ctypes.c_long))


def sleep_until(deadline_ns: int) -> None:
    """Return at ``deadline_ns``, or at once if that is over.

    Python's own sleep takes an interval: it would be as exact as two readings of the
    clock and a rounding, which is enough to make two runs under virtual time differ.
    """
    deadline = _Timespec(*divmod(max(0, deadline_ns), 10**9))
    while _libc.clock_nanosleep(time.CLOCK_MONOTONIC, TIMER_ABSTIME, ctypes.byref(deadline), None) == EINTR:
        pass


def punctual() -> None:
    """Ask for timers without slack (50 us by default), here and in processes started from here."""
    try:
        with open("/proc/self/timerslack_ns", "w") as slack:
            slack.write("1")
    except OSError:
        pass

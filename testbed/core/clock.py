"""Sleeping until an absolute instant of the monotonic clock, as exactly as the kernel can."""

from __future__ import annotations

import ctypes
import os
import sys
import time

TIMER_ABSTIME = 1  # TFD_TIMER_ABSTIME, too
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


class PeriodicTimer:
    """A timer (timerfd(2), CLOCK_MONOTONIC) that expires every ``interval_ns`` from ``first_ns`` on, both in ns.

    Its descriptor is readable from an expiration until `expirations` is read. Raises `OSError` if the kernel refuses
    the timer.
    """

    def __init__(self, first_ns: int, interval_ns: int) -> None:
        self._timer = _libc.timerfd_create(time.CLOCK_MONOTONIC, 0)
        times = (_Timespec * 2)(_Timespec(*divmod(interval_ns, 10**9)), _Timespec(*divmod(max(1, first_ns), 10**9)))
        if self._timer < 0 or _libc.timerfd_settime(self._timer, TIMER_ABSTIME, times, None) != 0:
            raise OSError(f"no timer every {interval_ns} ns")

    def fileno(self) -> int:
        return int(self._timer)

    def expirations(self) -> int:
        """Number of expirations since the last call, or since the start; waits for at least one."""
        return int.from_bytes(os.read(self._timer, 8), sys.byteorder)


def punctual() -> None:
    """Set the timer slack of this process and of its children to 1 ns (Linux's default: 50 us), where the kernel
    allows it."""
    try:
        with open("/proc/self/timerslack_ns", "w") as slack:
            slack.write("1")
    except OSError:
        pass


class Alarm:
    """Readable from an instant on that `set` names, until `clear`: timerfd(2), for a loop that waits for files, too."""

    def __init__(self) -> None:
        self._timer = _libc.timerfd_create(time.CLOCK_MONOTONIC, 0)
        if self._timer < 0:
            raise OSError("no timer")

    def fileno(self) -> int:
        return int(self._timer)

    def set(self, at_ns: int) -> None:
        """Set the alarm to a time of the monotonic clock, in ns; a past time expires at once."""
        times = (_Timespec * 2)(_Timespec(0, 0), _Timespec(*divmod(max(1, at_ns), 10**9)))
        if _libc.timerfd_settime(self._timer, TIMER_ABSTIME, times, None) != 0:
            raise OSError("the timer cannot be set")

    def clear(self) -> None:
        """Acknowledge the expiry of the timer."""
        os.read(self.fileno(), 8)

"""Memory that a process has before it touches it: in user-mode Linux each page that comes by itself costs three changes of process."""

from __future__ import annotations

import os

from testbed.linux.loading.bpfsys import libc

MCL_CURRENT, MCL_FUTURE = 1, 2


def have_all() -> None:
    """From now on all that is mapped is there, and what will be."""
    libc().mlockall(MCL_CURRENT | MCL_FUTURE)


def as_usual() -> None:
    """Page by page again; what is there stays."""
    libc().munlockall()


def unshare() -> None:
    """All pages that it shares with a copy of this process become its own, as long as half of the memory is free."""
    if os.sysconf("SC_AVPHYS_PAGES") > os.sysconf("SC_PHYS_PAGES") // 2:
        libc().mlockall(MCL_CURRENT)
        libc().munlockall()

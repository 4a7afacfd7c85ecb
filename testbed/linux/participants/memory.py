"""Pages mapped in advance: in user-mode Linux each page that is mapped at its first access takes three changes of process.

`kernel/uml/prefault.c` maps the pages of Python at its start, and those of a copy of the process.
"""

from __future__ import annotations

import os

from testbed.linux.loading.bpfsys import libc

MCL_CURRENT = 1


def map_on_access() -> None:
    """Map further pages at their first access again; pages that are mapped stay so."""
    libc().munlockall()


def unshare() -> None:
    """Copy all pages that this process shares with a copy of itself, as long as half of the memory is free."""
    if os.sysconf("SC_AVPHYS_PAGES") > os.sysconf("SC_PHYS_PAGES") // 2:
        libc().mlockall(MCL_CURRENT)
        libc().munlockall()

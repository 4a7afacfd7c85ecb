"""What the tests start, and what is left of it, told by descent: other runs on the same machine are others' affair."""

from __future__ import annotations

import contextlib
import ctypes
import os
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TypeVar

HANG_S = 1800.0  # whatever takes longer hangs, on the busiest machine
LOOK_EVERY_S = 0.05
PR_SET_CHILD_SUBREAPER = 36

Found = TypeVar("Found")


def loopback(ends: int, pid: int | None = None) -> list[str]:
    """So many addresses that only this process (or ``pid``) uses, whatever else is tested on this machine."""
    own = os.getpid() if pid is None else pid
    return [f"127.{end + 1}.{own >> 8 & 255}.{own & 255}" for end in range(ends)]


def adopt_orphans() -> None:
    """From now on, what this process starts stays below it, even if all in between are killed."""
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1)


def bury_orphans() -> None:
    """Those of them that have ended; between tests, when nobody else waits for a process."""
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG) != (0, 0):
            pass


def children() -> dict[int, list[int]]:
    """The processes that each one has started, by number."""
    found: dict[int, list[int]] = {}
    for process in Path("/proc").glob("[0-9]*"):  # not `*/stat`: a process that ends meanwhile would end the search
        with contextlib.suppress(OSError):
            parent = int((process / "stat").read_text(errors="replace").rpartition(")")[2].split()[1])
            found.setdefault(parent, []).append(int(process.name))
    return found


def below(ancestor: int | None = None) -> dict[int, list[str]]:
    """The commands of all processes that ``ancestor`` (this one, if not said) has started, directly or not, by number."""
    started, found, waiting = children(), dict[int, list[str]](), [os.getpid() if ancestor is None else ancestor]
    while waiting:
        for pid in started.get(waiting.pop(), ()):
            waiting.append(pid)
            with contextlib.suppress(OSError):
                if command := Path(
                    f"/proc/{pid}/cmdline"
                ).read_bytes():  # one that ended and was not waited for has none
                    found[pid] = command.decode(errors="replace").rstrip("\0").split("\0")
    return found


def listening(pids: Iterable[int]) -> list[str]:
    """The ports at which any of these processes takes connections or datagrams, as "tcp 0100007F:2253"."""
    sockets = set()
    for pid in pids:
        with contextlib.suppress(OSError):
            for link in Path(f"/proc/{pid}/fd").iterdir():
                with contextlib.suppress(OSError):
                    sockets.add(os.readlink(link))
    found = []
    for kind in ("tcp", "tcp6", "udp", "udp6"):
        for row in Path(f"/proc/net/{kind}").read_text().splitlines()[1:]:
            _, local, _, state, *_, inode = row.split()[:10]
            if f"socket:[{inode}]" in sockets and (state == "0A" or kind.startswith("udp")):
                found.append(f"{kind} {local}")
    return found


def named_semaphores(pids: Iterable[int]) -> list[str]:
    """Those of POSIX that these processes have mapped: a name in /dev/shm that stays if all are killed."""
    found = []
    for pid in pids:
        with contextlib.suppress(OSError):
            found += [line for line in Path(f"/proc/{pid}/maps").read_text().splitlines() if "/dev/shm/sem." in line]
    return found


def until(condition: Callable[[], Found], otherwise: Callable[[], object]) -> Found:
    """What ``condition`` tells once it tells something; fails with what there is ``otherwise`` if that never comes."""
    begun = time.monotonic()
    while not (found := condition()):
        assert time.monotonic() - begun < HANG_S, otherwise()
        time.sleep(LOOK_EVERY_S)
    return found

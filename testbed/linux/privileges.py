"""Under ``sudo``: which user started the run, and how root is given up permanently.

A run on `uml` needs no privilege, so it keeps none. It reads, builds and writes files as the user that typed the command.
Root without ``sudo`` stays root.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import signal
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from testbed.core import children
from testbed.core.environment import PACKAGES, ROOT
from testbed.core.errors import MachineError, TestbedError

# Folders that variables name; one that the caller cannot write is root's own.
FOLDERS = ("XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME", "XDG_RUNTIME_DIR", "MPLCONFIGDIR", "TMPDIR")  # fmt: skip
# One file of each kind that a run reads: code, sources to compile, the environment.
READ = (Path(PACKAGES, "testbed", "run.py"), Path(ROOT, "kernel", "mltcp.h"), Path(sys.executable))
MOST_SAID_BYTES = 1 << 16


@dataclass(frozen=True)
class Caller:
    """The user that typed ``sudo``."""

    uid: int
    gid: int
    name: str
    home: str
    groups: tuple[int, ...]


def caller() -> Caller | None:
    """The user that typed ``sudo``; None without it, or if that user was root."""
    try:
        uid, gid = int(os.environ["SUDO_UID"]), int(os.environ["SUDO_GID"])
    except (KeyError, ValueError):
        return None
    if os.geteuid() != 0 or uid <= 0 or gid < 0:
        return None
    try:
        entry = pwd.getpwuid(uid)
    except KeyError:  # a user of a directory service that is not queried here
        return Caller(uid, gid, str(uid), "/", (gid,))
    return Caller(uid, gid, entry.pw_name, entry.pw_dir, tuple(os.getgrouplist(entry.pw_name, gid)))


def give_up() -> None:
    """Be the caller from here on; raises `TestbedError` if root could be had back."""
    who = caller()
    if who is None:
        return
    ends_with = children.ended_with()  # the kernel forgets it where the user changes
    os.setgroups(who.groups)
    os.setresgid(who.gid, who.gid, who.gid)
    os.setresuid(who.uid, who.uid, who.uid)
    if ends_with:
        children.end_with(ends_with)
    _verify(who)
    _become(who)


def given_up() -> bool:
    """Return True if the process was started by ``sudo`` and has dropped root."""
    return "SUDO_UID" in os.environ and os.geteuid() != 0


def without_root(ask: Callable[[], bytes]) -> bytes:
    """Return the result of ``ask``, called in a child process without root; empty if that fails.

    Only bytes are returned.
    """
    ours, its = os.pipe()
    pid = os.fork()
    if pid == 0:
        with contextlib.suppress(BaseException):
            os.close(ours)
            silent = os.open(os.devnull, os.O_RDWR)  # the parent repeats this output if it continues
            for fd in (0, 1, 2):
                os.dup2(silent, fd)
            give_up()
            os.write(its, ask())
        os._exit(0)
    os.close(its)
    try:
        with open(ours, "rb") as answer:
            return answer.read(MOST_SAID_BYTES)
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


def _verify(who: Caller) -> None:
    if os.getresuid() != (who.uid,) * 3 or os.getresgid() != (who.gid,) * 3 or set(os.getgroups()) != set(who.groups):
        raise TestbedError(f"root could not be dropped for {who.name}; nothing was run.")
    with contextlib.suppress(PermissionError):
        os.setresuid(0, 0, 0)
        raise TestbedError(f"root was dropped for {who.name} but could be regained. Nothing was run.")


def _become(who: Caller) -> None:
    """Home and folders of the caller; raises `MachineError` if the checkout is not readable for them."""
    os.environ.update({"HOME": who.home, "USER": who.name, "LOGNAME": who.name})
    for name in FOLDERS:
        if name in os.environ and not _writable(Path(os.environ[name])):
            del os.environ[name]
    for path in READ:
        try:
            path.open("rb").close()
        except OSError as error:
            raise MachineError(
                f"under `sudo`, a run in user-mode Linux and --dry-run drop root, but user {who.name} cannot "
                f"read the testbed: {path}: {error.strerror}. Move the checkout to where {who.name} can read it. (A run with --on host keeps root.)"
            ) from error


def _writable(path: Path) -> bool:
    """Whether ``path``, or what of it is there, can be written by the effective user."""
    there = next((one for one in (path, *path.parents) if os.path.lexists(one)), Path("/"))
    return os.access(there, os.W_OK | os.X_OK, effective_ids=True)

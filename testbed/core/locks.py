"""Locks on experiment folders: one process at a time writes to each, even if processes are killed.

Each has a lock file in the results folder: ``.lock-`` and a hash of the folder's name. It holds the number of the process.
The kernel releases a lock (``flock``) with its process. Only the owner can open the file, so that no other user can lock a
folder. The next process that releases a lock removes unlocked files.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import os
import stat
import time
from collections.abc import Iterator
from pathlib import Path

from testbed.core import folders
from testbed.core.errors import MachineError

FILE = ".lock-"  # prefix of the names of lock files
TRIES, RETRY_S = 3, 0.05  # another command may just be removing the file
_FLAGS = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class InUseError(MachineError):
    """Another process writes to the same folder."""


@contextlib.contextmanager
def held(out: Path) -> Iterator[Locks]:
    """Locks on folders below ``out``, all of them released at the end."""
    locks = Locks(out)
    try:
        yield locks
    finally:
        locks.release()


class Locks:
    """Locks that one command holds below one results folder."""

    def __init__(self, out: Path) -> None:
        self.out = out
        self._held: dict[str, int] = {}  # descriptors, by the name of the file
        self._made = not out.exists()

    def take(self, name: str) -> None:
        """Lock the folder ``name``, unless it is locked by these; raises `InUseError` if another command has it."""
        file = f"{FILE}{hashlib.sha256(name.encode()).hexdigest()[:16]}"
        if file in self._held:
            return
        try:
            with folders.opened(self.out, self.out) as above:
                self._held[file] = _locked(file, above, TRIES)
        except BlockingIOError as error:
            raise InUseError(
                f"{self.out / name}: in use by {error.strerror}. Two commands never write to one folder. Wait for it to end, or name "
                "another experiment (--name) or results folder (--out)."
            ) from error
        except OSError as error:
            raise MachineError(
                f"{self.out / file}: cannot be locked: {error.strerror or error}. Two commands could write to one folder. "
                "Remove that file if it belongs to another user, or name another results folder by --out."
            ) from error

    def release(self) -> None:
        """Release all of them. Unlocked lock files are removed, and also an empty folder that was made for the lock."""
        for fd in self._held.values():
            fcntl.flock(fd, fcntl.LOCK_UN)  # a child that was forked has the descriptor, too
            os.close(fd)
        self._held.clear()
        for file in self.out.glob(f"{FILE}*"):  # also those of a process that was killed
            with contextlib.suppress(OSError):
                fd = _locked(str(file))
                file.unlink()
                os.close(fd)
        if self._made:
            with contextlib.suppress(OSError):
                self.out.rmdir()  # if it is empty


def _locked(file: str, above: int | None = None, tries: int = 1) -> int:
    """A descriptor of ``file`` (in the folder behind ``above``) that keeps it locked. Raises `BlockingIOError` with the holder."""
    while True:
        fd = os.open(file, _FLAGS, 0o600, dir_fd=above)
        try:
            _lock(fd, tries)
            if os.fstat(fd).st_nlink:
                os.pwrite(fd, b"process %d" % os.getpid(), 0)
                return fd
        except BaseException:
            os.close(fd)
            raise
        os.close(fd)  # another process has removed it in between


def _lock(fd: int, tries: int) -> None:
    status = os.fstat(fd)
    if not stat.S_ISREG(status.st_mode):
        raise OSError(errno.EINVAL, "not a regular file")
    if status.st_uid == os.geteuid():
        folders.give_to_caller(fd)
    while True:
        try:
            return fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            tries -= 1
            if not tries:
                by = os.pread(fd, 32, 0).decode(errors="replace")
                raise BlockingIOError(errno.EAGAIN, by or "another process") from error
        time.sleep(RETRY_S)

"""Locks on experiment folders: one process at a time writes to each, however that process ends.

A lock is on one byte of the file ``.lock`` in the results folder. The byte's number follows from the folder's name. The kernel
releases a lock with its process, and names the process that holds it. Children do not inherit locks. Only the owner can open
the file, so that no other user can lock a folder. The last lock to be released removes the file.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import os
import stat
import struct
import threading
import time
from collections.abc import Iterator
from pathlib import Path

from testbed.core import folders
from testbed.core.errors import MachineError

FILE = ".lock"
FLOCK = "hhqqi4x"  # struct flock: type, whence, start, length, pid
RETRIES, RETRY_S = 5, 0.05  # while another process removes the file
_FLAGS = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC

# Of this process, by device and inode of the file: its descriptor and the bytes locked. Closing any descriptor of a file
# releases all of a process's locks on it, so there is one.
_held: dict[tuple[int, int], tuple[int, set[int]]] = {}
_guard = threading.Lock()


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
    """What one command has locked below one results folder."""

    def __init__(self, out: Path) -> None:
        self.out = out
        self._taken: list[tuple[tuple[int, int], int]] = []
        self._names: set[str] = set()
        self._made = not out.exists()

    def take(self, name: str) -> None:
        """Lock the folder ``name``, unless it is locked by these; raises `InUseError` if another command has it."""
        if name in self._names:
            return
        try:
            with _guard:
                for _ in range(RETRIES):
                    holder = self._try(_byte(name))
                    if holder is None:
                        self._names.add(name)
                        return
                    time.sleep(RETRY_S)
        except OSError as error:
            raise MachineError(
                f"{self.out / FILE}: cannot be locked: {error.strerror or error}. Two commands could write to one folder. "
                "Remove that file if it belongs to another user, or name another results folder by --out."
            ) from error
        by = f"process {holder}" if holder else "another process"
        raise InUseError(
            f"{self.out / name}: in use by {by}. Two commands never write to one folder. Wait for it to end, or name another "
            "experiment (--name) or results folder (--out)."
        )

    def _try(self, byte: int) -> int | None:
        """None if it is ours now, else the process that has it (0: unknown)."""
        with folders.opened(self.out, self.out) as above:
            key, fd = _opened(above)
            if byte in _held[key][1]:
                return os.getpid()
            try:
                fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, byte)
            except OSError as error:
                if error.errno not in (errno.EACCES, errno.EAGAIN):
                    raise
                found = struct.unpack(FLOCK, fcntl.fcntl(fd, fcntl.F_GETLK, _flock(byte)))
                _forget_if_unused(key)
                return int(found[4]) if found[0] != fcntl.F_UNLCK else 0
            _held[key][1].add(byte)
            self._taken.append((key, byte))
            try:
                there = os.stat(FILE, dir_fd=above, follow_symlinks=False)
            except FileNotFoundError:
                there = None
            if there is not None and (there.st_dev, there.st_ino) == key:
                return None
            # Its last owner has removed the file in between: the next attempt makes a new one.
            self._taken.pop()
            _held[key][1].remove(byte)
            fcntl.lockf(fd, fcntl.LOCK_UN, 1, byte)
            _forget_if_unused(key)
            return 0

    def release(self) -> None:
        """Give up all of them; a file that no command needs any more, and a folder that was made for nothing, are removed."""
        with _guard:
            for key, byte in self._taken:
                fd, bytes_ = _held[key]
                bytes_.remove(byte)
                if not bytes_:
                    self._remove(key, fd)
                else:
                    fcntl.lockf(fd, fcntl.LOCK_UN, 1, byte)
                _forget_if_unused(key)
            self._taken.clear()
            self._names.clear()
        if self._made:
            with contextlib.suppress(OSError):
                self.out.rmdir()  # if it is empty

    def _remove(self, key: tuple[int, int], fd: int) -> None:
        """The file, if all of it can be locked: then no other process has a lock on it."""
        with contextlib.suppress(OSError):
            fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            there = (self.out / FILE).lstat()
            if (there.st_dev, there.st_ino) == key:
                (self.out / FILE).unlink()


def _byte(name: str) -> int:
    return int.from_bytes(hashlib.sha256(name.encode()).digest()[:7], "big")


def _flock(byte: int) -> bytes:
    return struct.pack(FLOCK, fcntl.F_WRLCK, os.SEEK_SET, byte, 1, 0)


def _opened(above: int) -> tuple[tuple[int, int], int]:
    """The file in the folder behind ``above``, opened once in this process."""
    try:
        there = os.stat(FILE, dir_fd=above, follow_symlinks=False)
        key = there.st_dev, there.st_ino
        if key in _held:
            return key, _held[key][0]
    except FileNotFoundError:
        pass
    fd = os.open(FILE, _FLAGS, 0o600, dir_fd=above)
    status = os.fstat(fd)
    if not stat.S_ISREG(status.st_mode):
        os.close(fd)
        raise OSError(errno.EINVAL, "not a regular file")
    key = status.st_dev, status.st_ino
    if status.st_uid == os.geteuid():
        folders.give_to_caller(fd)
    _held[key] = fd, set()
    return key, fd


def _forget_if_unused(key: tuple[int, int]) -> None:
    fd, bytes_ = _held[key]
    if not bytes_:
        os.close(fd)
        del _held[key]

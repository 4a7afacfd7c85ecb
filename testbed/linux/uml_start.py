"""The first file that Python runs in user-mode Linux: imports from the archive of `testbed.backends.usermode.bytecode`.

Until the archive is in place, each import takes milliseconds, so this file imports only what Python has loaded at its
start.
"""

from __future__ import annotations

import marshal
import os
import sys
from importlib._bootstrap_external import SourceFileLoader, spec_from_file_location

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import CodeType
    from typing import Any, BinaryIO

RUN = "/run/mltcp"  # the folder that `testbed.backends.uml` has prepared
MAGIC = b"mltcp bytecode 1"
LENGTH_BYTES = 8  # of the index, big endian, behind the magic


def read_index(archive: BinaryIO) -> dict[str, Any]:
    """The index of an archive, an `Entry` of `testbed.backends.usermode.bytecode` by module; the codes follow.

    Raises `ValueError`, `EOFError` or `TypeError` if the file is no archive.
    """
    if archive.read(len(MAGIC)) != MAGIC:
        raise ValueError("no archive of bytecode")
    index: dict[str, Any] = marshal.loads(archive.read(int.from_bytes(archive.read(LENGTH_BYTES), "big")))
    return index


class Loader(SourceFileLoader):
    """Takes a module's code from the archive instead of its file."""

    def __init__(self, name: str, file: str, finder: Finder, at: int, length: int) -> None:
        """``at``, ``length``: place of the code among the codes, in bytes."""
        super().__init__(name, file)
        self.finder, self.at, self.length = finder, at, length

    def get_code(self, fullname: str) -> CodeType | None:
        """The module's code."""
        code: CodeType = marshal.loads(self.finder.read(self.at, self.length))
        return code


class Finder:
    """Finds the modules of the archive before `sys.path` is searched."""

    def __init__(self, archive: BinaryIO) -> None:
        """``archive``: the open file, at its start. After it is closed, each module opens it again."""
        self.archive = archive
        self.index = read_index(archive)
        self.start = archive.tell()

    def read(self, at: int, length: int) -> bytes:
        """Bytes of the codes."""
        if not self.archive.closed:
            return os.pread(self.archive.fileno(), length, self.start + at)
        with open(self.archive.name, "rb", buffering=0) as archive:
            return os.pread(archive.fileno(), length, self.start + at)

    def find_spec(self, name: str, path: object = None, target: object = None) -> object:
        """A module's specification; None if the archive lacks it."""
        if name not in self.index:
            return None
        _, file, is_package, _, _, at, length = self.index[name]
        folders = [file.rpartition("/")[0]] if is_package else None
        loader = Loader(name, file, self, at, length)
        return spec_from_file_location(name, file, loader=loader, submodule_search_locations=folders)


class WithoutLocks:
    """In its block, imports take no locks, since there is one thread. Each lock reads the clock, which is a system call."""

    NAMES = ("_ModuleLockManager", "_ImportLockContext")

    def __init__(self) -> None:
        self.bootstrap = sys.modules["_frozen_importlib"]

    def __enter__(self) -> None:
        self.locks = {name: getattr(self.bootstrap, name) for name in self.NAMES if hasattr(self.bootstrap, name)}
        vars(self.bootstrap).update(dict.fromkeys(self.locks, NoLock))

    def __exit__(self, *_: object) -> None:
        vars(self.bootstrap).update(self.locks)


class NoLock:
    """Does nothing, in place of a lock."""

    def __init__(self, *_: object) -> None: ...

    def __enter__(self) -> None: ...

    def __exit__(self, *_: object) -> None: ...


if __name__ == "__main__":
    with open(f"{RUN}/packages") as folders:
        sys.path += folders.read().split("\n")
    if os.path.exists(f"{RUN}/cache"):
        with open(f"{RUN}/cache") as cache:
            os.environ["MLTCP_CACHE"] = cache.read()
    del os.environ["LD_PRELOAD"]  # it is for this process and its copies
    # The file is closed when the run begins: workers are copies of this process, and close all files that are not theirs.
    with open(f"{RUN}/bytecode", "rb") as archive, WithoutLocks():
        sys.meta_path.insert(0, Finder(archive))  # type: ignore[arg-type]
        from testbed.linux import uml_init

        uml_init.import_run()
    uml_init.main()

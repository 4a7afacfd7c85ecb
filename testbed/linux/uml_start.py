"""The first file that Python runs in user-mode Linux: imports from the archive of `testbed.backends.usermode.bytecode`.

Until the archive is in place, each import takes
milliseconds, so this file imports only what Python has loaded at its start.
"""

from __future__ import annotations

import marshal
import os
import sys
from importlib._bootstrap_external import SourceFileLoader, spec_from_file_location

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import CodeType

RUN = "/run/mltcp"  # the folder that `testbed.backends.uml` has prepared
MAGIC_BYTES, LENGTH_BYTES = 16, 8


class Loader(SourceFileLoader):
    """Takes a module's code from the archive instead of its file."""

    def __init__(self, name: str, file: str, archive: int, at: int, length: int) -> None:
        """``archive``: file descriptor; ``at``, ``length``: place of the code in it, in bytes."""
        super().__init__(name, file)
        self.place = (archive, length, at)

    def get_code(self, fullname: str) -> CodeType | None:
        """The module's code."""
        code: CodeType = marshal.loads(os.pread(*self.place))
        return code


class Finder:
    """Finds the modules of the archive before `sys.path` is searched."""

    def __init__(self, archive: int) -> None:
        """``archive``: file descriptor of the archive, at its start."""
        length = int.from_bytes(os.read(archive, MAGIC_BYTES + LENGTH_BYTES)[MAGIC_BYTES:], "big")
        self.archive = archive
        self.start = MAGIC_BYTES + LENGTH_BYTES + length
        self.index = marshal.loads(os.read(archive, length))

    def find_spec(self, name: str, path: object = None, target: object = None) -> object:
        """A module's specification; None if the archive lacks it."""
        if name not in self.index:
            return None
        _, file, is_package, _, _, at, length = self.index[name]
        loader = Loader(name, file, self.archive, self.start + at, length)
        folders = [file.rpartition("/")[0]] if is_package else None
        return spec_from_file_location(name, file, loader=loader, submodule_search_locations=folders)


class WithoutLocks:
    """In its block, imports take no locks, since there is one thread. Each lock reads the clock, which is a system call."""

    NAMES = ("_ModuleLockManager", "_ImportLockContext")

    def __init__(self, *_: object) -> None:
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
    sys.meta_path.insert(0, Finder(os.open(f"{RUN}/bytecode", os.O_RDONLY | os.O_CLOEXEC)))  # type: ignore[arg-type]
    with WithoutLocks():
        from testbed.linux import uml_init

        uml_init.import_run()
    uml_init.main()

"""Temporary folders of a run, which are removed with the run, however it ends.

Should the process be killed, a small one that watches it removes the folder. Should both be (a
power failure), the next run does: a folder is locked by its owner, so that an unlocked one has
none any more.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

NEW_S = 1.0  # s after its creation in which a folder may still become locked
# End of file on stdin: the owner has ended. Its child processes may still write for a moment, so removal is repeated.
# A byte before the end of file: the folder stays.
REMOVER = """
import os, shutil, sys, time
if sys.stdin.read():
    sys.exit()
path = sys.argv[1]
for _ in range(50):
    shutil.rmtree(path, ignore_errors=True)
    if os.path.isfile(path):
        os.unlink(path)
    if not os.path.lexists(path):
        break
    time.sleep(0.1)
"""


@contextlib.contextmanager
def removed_in_any_case(path: Path, folder: int | None = None) -> Iterator[None]:
    """Remove ``path`` (relative to the folder descriptor ``folder``, if given) at the end, also if this process is
    killed before."""
    with removed_unless_kept(path, folder):
        yield


@contextlib.contextmanager
def removed_unless_kept(path: Path, folder: int | None = None) -> Iterator[Callable[[], None]]:
    """Remove ``path`` as `removed_in_any_case` does, unless the yielded function is called first."""
    where = path.absolute() if folder is None else Path(f"/proc/self/fd/{folder}", path)
    command = [sys.executable, "-I", "-S", "-c", REMOVER, str(where)]
    kept = () if folder is None else (folder,)
    # A separate session: Ctrl-C in the terminal ends this process, but not the remover.
    with subprocess.Popen(command, stdin=subprocess.PIPE, start_new_session=True, pass_fds=kept) as remover:
        yield lambda: _say(remover)


@contextlib.contextmanager
def scratch(base: Path | None = None) -> Iterator[Path]:
    """A new private folder in ``base`` (``$TMPDIR``), removed at the end even if this process is killed.

    Folders whose process and remover were both killed are removed first.
    """
    base = Path(tempfile.gettempdir()) if base is None else base
    prefix = f"mltcp-{os.getuid()}-"
    sweep(base.glob(f"{prefix}*"))
    made = Path(tempfile.mkdtemp(prefix=prefix, dir=base))
    with removed_in_any_case(made), locked(made):
        yield made


@contextlib.contextmanager
def locked(folder: Path, above: int | None = None) -> Iterator[int]:
    """Lock ``folder`` (below the descriptor ``above``). Raises `OSError` if another process holds the lock, or if it is a link."""
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=above)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield fd
    finally:
        os.close(fd)


def _say(remover: subprocess.Popen[bytes]) -> None:
    assert remover.stdin is not None
    with contextlib.suppress(BrokenPipeError):  # the remover was killed, and removes nothing
        remover.stdin.write(b"kept")
        remover.stdin.flush()


def sweep(folders: Iterable[Path]) -> None:
    """Remove those of ``folders`` that are ours and have no owner any more."""
    for folder in folders:
        with contextlib.suppress(OSError):
            status = folder.lstat()
            if status.st_uid == os.getuid() and time.time() - status.st_mtime > NEW_S:
                with locked(folder):
                    shutil.rmtree(folder, ignore_errors=True)

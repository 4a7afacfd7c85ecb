"""Folders below one that the user has named (``--out``): made where they are missing, and no link is followed in them.

Under `sudo`, the caller may put a link where root is about to write. Hence every folder is reached by the descriptor of its
parent, and new files are given to the caller by their own descriptors.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import stat
from collections.abc import Iterator
from pathlib import Path

from testbed.core.errors import RequestError
from testbed.core.text import shown

WALK = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC  # O_PATH: a folder that one may only pass through
NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


@contextlib.contextmanager
def opened(folder: Path, out: Path) -> Iterator[int]:
    """Yield an O_PATH descriptor of ``folder``, which is ``out`` or below it; missing folders are created and belong
    to the caller.

    Raises `RequestError` if a path component between the two is a symbolic link, and `OSError` if a folder cannot be created.
    """
    fd = os.open("/", WALK)
    try:
        for part in _parts(folder, out):
            above, fd = fd, _entered(fd, part, folder)
            os.close(above)
        yield fd
    finally:
        os.close(fd)


def check(folder: Path, out: Path) -> None:
    """Raise `RequestError` if `opened` would; create nothing."""
    here = out.resolve()
    for part in folder.relative_to(out).parts:
        here /= part
        try:
            linked = here.is_symlink()
        except OSError as error:
            raise RequestError(
                f"--out: {shown(here, 200)} cannot be a folder: {error.strerror}. Name another folder."
            ) from error
        if linked:
            raise _link(here, folder)


def write(fd: int, name: str, content: bytes) -> None:
    """A new file in the folder behind ``fd``, the caller's."""
    with os.fdopen(os.open(name, NEW, 0o666, dir_fd=fd), "wb") as file:
        file.write(content)
        give_to_caller(file.fileno())


def put(path: Path, content: bytes) -> None:
    """A file with ``content`` in the place of any other: complete or absent."""
    aside = path.with_name(f".{path.name[:64]}.partial-{secrets.token_hex(8)}")
    try:
        aside.write_bytes(content)
        aside.replace(path)
    except BaseException:
        aside.unlink(missing_ok=True)
        raise


def give_to_caller(fd: int) -> None:
    """Under `sudo`, files that this run has made belong to the caller."""
    user, group = os.environ.get("SUDO_UID"), os.environ.get("SUDO_GID")
    if os.geteuid() == 0 and user is not None and group is not None:
        with contextlib.suppress(OSError):  # a file system without owners
            os.fchown(fd, int(user), int(group))


def _parts(folder: Path, out: Path) -> tuple[str, ...]:
    """Return the path components of ``folder``; links above ``out`` are resolved, since the user made them."""
    return (*out.resolve().parts[1:], *folder.relative_to(out).parts)


def _entered(fd: int, name: str, folder: Path) -> int:
    try:
        return os.open(name, WALK, dir_fd=fd)
    except NotADirectoryError as error:
        if stat.S_ISLNK(os.stat(name, dir_fd=fd, follow_symlinks=False).st_mode):
            raise _link(Path(name), folder) from error
        raise
    except FileNotFoundError:
        return _made(fd, name)


def _made(fd: int, name: str) -> int:
    try:
        os.mkdir(name, dir_fd=fd)
    except FileExistsError:  # another process was faster: the folder keeps its owner
        return os.open(name, WALK, dir_fd=fd)
    made = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=fd)
    if os.fstat(made).st_uid == os.geteuid():
        give_to_caller(made)
    return made


def _link(where: Path, folder: Path) -> RequestError:
    return RequestError(
        f"{folder}: {where} is a link, and results are never written through one. Remove it, or name another folder by --out."
    )

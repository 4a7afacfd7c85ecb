"""Run directories: complete or absent.

A run's files arrive as an archive, are written next to their destination, and are renamed into place. If the writer is
killed in between, no file remains (`testbed.core.temp_dirs`).
"""

from __future__ import annotations

import contextlib
import ctypes
import io
import os
import secrets
import shutil
import stat
import tarfile
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

from testbed.core import folders, temp_dirs
from testbed.core.errors import RequestError, TestbedError
from testbed.core.folders import give_to_caller
from testbed.core.temp_dirs import locked, removed_in_any_case

PARTIAL = ".partial-"
RENAME_EXCHANGE = 2
MOST_FILES = 64


def pack(files: Mapping[str, bytes], archive: bytes = b"") -> bytes:
    """A tar archive of these files, after those of ``archive``."""
    buffer = io.BytesIO(archive)
    with tarfile.open(fileobj=buffer, mode="a" if archive else "w") as tar:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    return buffer.getvalue()


def unpack(archive: bytes) -> dict[str, bytes]:
    """The files of a tar archive: only plain files, and none in a folder.

    It may come from another machine, or from a damaged guest. Raises `TestbedError` for any entry that no run produces.
    """
    files: dict[str, bytes] = {}
    try:
        with tarfile.open(fileobj=io.BytesIO(archive), mode="r:") as tar:
            for member in tar:
                if not member.isreg() or member.name != Path(member.name).name or member.name in ("", ".", ".."):
                    raise TestbedError(
                        f"the run returned {member.name[:80]!r}, which is not a plain file. Run it again."
                    )
                if member.sparse is not None or member.size > len(archive) or len(files) == MOST_FILES:
                    raise TestbedError(
                        f"the run returned more than {MOST_FILES} files, or a file larger than its archive. Run it again."
                    )
                content = tar.extractfile(member)
                assert content is not None
                files[member.name] = content.read()
    except (tarfile.TarError, ValueError, LookupError, ArithmeticError, OSError, RecursionError) as error:
        raise TestbedError(f"the run returned an archive that cannot be read: {error}. Run it again.") from error
    return files


def store(files: Mapping[str, bytes], destination: Path, out: Path | None = None) -> None:
    """Put a run directory with ``files`` at ``destination``, below ``out`` (default: its parent folder).

    An older run there is replaced completely, or kept completely if this fails. Raises `RequestError` if a path
    component between ``out`` and ``destination`` is a symbolic link.
    """
    try:
        with folders.opened(destination.parent, out or destination.parent) as above, _partial(above) as (name, fd):
            for file, content in files.items():
                folders.write(fd, file, content)
            give_to_caller(fd)
            _put(name, destination, above)
    except OSError as error:
        raise TestbedError(
            f"the results could not be written to {destination}: {error.strerror or error}. No incomplete result was kept. Make room there, or name another --out."
        ) from error


def check_writable(out: Path) -> None:
    """Raises `RequestError` if results cannot be put below ``out``, which need not be there yet."""
    there = next((path for path in (out, *out.absolute().parents) if os.path.lexists(path)), Path("/"))
    try:
        tempfile.TemporaryFile(dir=there).close()
    except OSError as error:
        raise RequestError(
            f"--out {out}: nothing can be written to {there}: {error.strerror}. Name another folder for the results."
        ) from error


def write_text(path: Path, text: str, out: Path | None = None) -> None:
    """Write ``text`` as UTF-8 to ``path``, as `write` does."""
    write(path, text.encode(), out)


def write(path: Path, content: bytes, out: Path | None = None) -> None:
    """Write a file so that it is complete or absent; no link is followed between ``out`` (else its parent folder) and it."""
    try:
        with folders.opened(path.parent, out or path.parent) as above:
            name = _aside(path.name)
            with removed_in_any_case(Path(name), above):
                folders.write(above, name, content)
                os.rename(name, path.name, src_dir_fd=above, dst_dir_fd=above)
    except OSError as error:
        raise TestbedError(f"{path} could not be written: {error.strerror or error}") from error


@contextlib.contextmanager
def filled(destination: Path, out: Path | None = None) -> Iterator[Path]:
    """A temporary folder to write files into; at the end they replace the files of the same names in ``destination``."""
    try:
        with folders.opened(destination, out or destination) as above, _partial(above) as (_, fd):
            yield Path(f"/proc/self/fd/{fd}")
            for name in sorted(os.listdir(fd)):
                with os.fdopen(os.open(name, os.O_RDONLY | os.O_NOFOLLOW, dir_fd=fd)) as file:
                    give_to_caller(file.fileno())
                os.rename(name, name, src_dir_fd=fd, dst_dir_fd=above)
    except OSError as error:
        raise TestbedError(f"{destination} could not be written: {error.strerror or error}") from error


def forget(experiment: Path, out: Path) -> None:
    """Remove an experiment's summary and figures, which are made again from its runs."""
    for folder in (experiment, experiment / "figures"):
        if not folder.is_dir():
            continue
        with folders.opened(folder, out) as fd:
            for name in ["summary.json"] if folder == experiment else os.listdir(f"/proc/self/fd/{fd}"):
                with contextlib.suppress(FileNotFoundError, IsADirectoryError, PermissionError):
                    os.unlink(name, dir_fd=fd)


def sweep(folder: Path) -> None:
    """Remove partial run directories below ``folder`` whose writer has ended."""
    temp_dirs.sweep(folder.rglob(f".*{PARTIAL}*") if folder.is_dir() else ())


def _aside(name: str) -> str:
    """A name that other users cannot predict."""
    return f".{name[:64]}{PARTIAL}{secrets.token_hex(8)}"


@contextlib.contextmanager
def _partial(above: int) -> Iterator[tuple[str, int]]:
    """A new folder in the one behind ``above``, gone at the end unless it was renamed: its name and descriptor."""
    name = _aside("run")
    with removed_in_any_case(Path(name), above):
        os.mkdir(name, dir_fd=above)
        with locked(Path(name), above) as fd:
            yield name, fd


def _put(name: str, destination: Path, above: int) -> None:
    """Rename, or exchange with an older run (which then has the other's ``name``, and is removed)."""
    both = {"src_dir_fd": above, "dst_dir_fd": above}
    try:
        older = os.stat(destination.name, dir_fd=above, follow_symlinks=False)
    except FileNotFoundError:
        os.rename(name, destination.name, **both)
        return
    if stat.S_ISLNK(older.st_mode):
        raise RequestError(f"{destination} is a link, and results are never written through one. Remove it.")
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.renameat2(above, os.fsencode(name), above, os.fsencode(destination.name), RENAME_EXCHANGE) != 0:
        # A file system that cannot exchange: there is a moment without either.
        old = _aside("old")
        os.rename(destination.name, old, **both)
        os.rename(name, destination.name, **both)
        shutil.rmtree(old, dir_fd=above)

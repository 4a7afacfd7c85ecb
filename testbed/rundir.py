"""Run directories: complete or absent.

A run's files arrive as an archive, are written beside their destination and renamed into
place (`testbed.leftovers`: killed in between, nothing of them stays).
"""

from __future__ import annotations

import contextlib
import ctypes
import io
import json
import os
import shutil
import tarfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from testbed import leftovers
from testbed.errors import TestbedError
from testbed.leftovers import locked, removed_in_any_case

PARTIAL = ".partial-"
AT_FDCWD, RENAME_EXCHANGE = -100, 2


def unpack(archive: bytes) -> dict[str, bytes]:
    """The files of a tar archive: plain ones only, none in a folder, whatever the archive says."""
    files = {}
    with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
        for member in tar:
            content = tar.extractfile(member)
            if content is None or member.name != Path(member.name).name:
                raise TestbedError(f"the run handed over {member.name!r}, which is not a plain file")
            files[member.name] = content.read()
    return files


def store(files: Mapping[str, bytes], destination: Path) -> None:
    """Put a run directory with ``files`` at ``destination``.

    An older run there is replaced as a whole, or kept as a whole if this fails.
    """
    try:
        destination.parent.mkdir(parents=True, exist_ok=True)
        with _partial(destination) as folder:
            for name, content in files.items():
                (folder / name).write_bytes(content)
            give_to_caller(folder)
            _put(folder, destination)
    except OSError as error:
        raise TestbedError(
            f"the results could not be written to {destination}: {error.strerror or error}. Nothing half-written was kept."
        ) from error
    give_to_caller(*_made(destination))


def write_text(path: Path, text: str) -> None:
    """Write a file so that it is complete or absent."""
    aside = path.with_name(f".{path.name}{PARTIAL}{os.getpid()}")
    try:
        with removed_in_any_case(aside):
            aside.write_text(text)
            give_to_caller(aside)
            aside.rename(path)
    except OSError as error:
        raise TestbedError(f"{path} could not be written: {error.strerror or error}") from error


def sweep(folder: Path) -> None:
    """Remove partial folders below ``folder`` whose writer is gone."""
    leftovers.sweep(folder.rglob(f".*{PARTIAL}*") if folder.is_dir() else ())


@contextlib.contextmanager
def _partial(destination: Path) -> Iterator[Path]:
    folder = destination.with_name(f".{destination.name}{PARTIAL}{os.getpid()}")
    with removed_in_any_case(folder):
        folder.mkdir()
        with locked(folder):
            yield folder


def _put(folder: Path, destination: Path) -> None:
    """Rename, or exchange with an older run (which is then at ``folder``, and removed)."""
    if not destination.exists():
        folder.rename(destination)
        return
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.renameat2(AT_FDCWD, bytes(folder), AT_FDCWD, bytes(destination), RENAME_EXCHANGE) != 0:
        # A file system that cannot exchange: there is a moment without either.
        aside = folder.with_name(folder.name + ".old")
        destination.rename(aside)
        folder.rename(destination)
        shutil.rmtree(aside)


def _made(destination: Path) -> list[Path]:
    """The destination's parents up to and including ``results``."""
    parents = []
    for parent in destination.parents:
        if parent.name == "" or not os.access(parent, os.W_OK) or parent == Path.cwd():
            break
        parents.append(parent)
        if parent.name == "results":
            break
    return parents[:4]


def give_to_caller(*paths: Path) -> None:
    """Under `sudo`, what is written belongs to who typed it."""
    user, group = os.environ.get("SUDO_UID"), os.environ.get("SUDO_GID")
    if os.geteuid() != 0 or user is None or group is None:
        return
    for path in paths:
        for each in [path, *path.rglob("*")] if path.is_dir() else [path]:
            with contextlib.suppress(OSError):
                os.chown(each, int(user), int(group), follow_symlinks=False)


def read_json(path: Path) -> dict[str, Any]:
    """A JSON object of a run directory."""
    result: dict[str, Any] = json.loads(path.read_text())
    return result

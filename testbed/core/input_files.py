"""Files that a user names: regular ones, of a stated size at most; else one sentence gives the reason."""

from __future__ import annotations

import os
import stat
from io import BufferedReader
from pathlib import Path

from testbed.core.errors import RequestError
from testbed.core.text import is_text, shown

MEGABYTE = 10**6


class FileError(RequestError):
    """A file that cannot be read; the message is a sentence that names it."""


class MissingError(FileError):
    """The named file does not exist."""


def opened(path: Path | str) -> BufferedReader:
    """Open ``path`` for reading, without blocking on a FIFO.

    Raises `FileError` if it is no regular file or cannot be read.
    """
    name = shown(path, 200)
    if not is_text(str(path)):
        raise FileError(f"{name} cannot be the name of a file")
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError) as error:
        raise MissingError(f"there is no file {name}") from error
    except OSError as error:
        raise FileError(f"{name} cannot be read: {error.strerror}") from error
    mode = os.fstat(descriptor).st_mode
    if stat.S_ISREG(mode):
        return os.fdopen(descriptor, "rb")
    os.close(descriptor)
    what = (
        "a folder, not a file"
        if stat.S_ISDIR(mode)
        else "not a regular file but a device or a pipe. Copy its content to a file"
    )
    raise FileError(f"{name} cannot be read: it is {what}")


def read_bytes(path: Path | str, most_bytes: int) -> bytes:
    """Return the content of ``path``. Raises `FileError` if it has more than ``most_bytes`` bytes or cannot be read.

    The limit applies to the bytes read, because the reported size can be wrong (0 in /proc, too small for a growing file).
    """
    with opened(path) as file:
        try:
            content = file.read(most_bytes + 1)
        except OSError as error:
            raise FileError(f"{shown(path, 200)} cannot be read: {error.strerror}") from error
    if len(content) > most_bytes:
        raise FileError(
            f"{shown(path, 200)} is larger than {most_bytes / MEGABYTE:g} MB, the limit for files of its kind. Name another file"
        )
    return content


def read_text(path: Path | str, most_bytes: int) -> str:
    """Return the content of ``path`` as text. Raises `FileError` as `read_bytes` does, and if it is not UTF-8."""
    try:
        return read_bytes(path, most_bytes).decode()
    except UnicodeDecodeError as error:
        raise FileError(f"{shown(path, 200)} is not UTF-8 text: byte {error.start}: {error.reason}") from error


def is_file(path: Path | str) -> bool:
    """Return True if ``path`` names a regular file; False for an invalid name."""
    try:
        return is_text(str(path)) and stat.S_ISREG(os.stat(path).st_mode)
    except OSError:
        return False

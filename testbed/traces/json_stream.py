"""Big and possibly hostile files, read in bounded memory.

What an importer holds at a time is one value of the file, and a value may neither be
long nor deep: a gzip file of a few kilobytes can unpack to gigabytes of one string.
"""

from __future__ import annotations

import gzip
import io
import itertools
import math
import re
import reprlib
import zlib
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any, BinaryIO, cast

import ijson
import numpy as np

from testbed.core.input_files import FileError, opened
from testbed.traces.trace import TraceError

HEAD = 64 << 10  # bytes by which a format is recognised
LONGEST = 8 << 20  # bytes of one value: events and nodes have a few hundred
MOST = 4 << 30  # bytes of a file, unpacked: a profile of a few steps has some hundred million
DEEPEST = 64  # lists and objects within each other: a profiler's have about five
_CHUNK = 64 << 10
ALL, LINES = "*", "\n"  # instead of the name of a list, in `items`


class Source(io.RawIOBase):
    """The bytes of ``path``, unpacked if it is a gzip file; raises `TraceError`.

    The reader reports with `progress` that a value is complete; without that no more
    than `LONGEST` bytes are handed out.
    """

    _file: BinaryIO | None = None  # it is closed also where it could not be opened

    def __init__(self, path: Path) -> None:
        try:
            file = opened(path)
            packed = file.read(2) == b"\x1f\x8b"
            file.seek(0)
        except FileError as error:
            raise TraceError(str(error)) from error
        except OSError as error:
            raise TraceError(f"{path} cannot be read: {error.strerror}") from error
        self.path = path
        self._file = file
        self._bytes = cast(BinaryIO, gzip.GzipFile(fileobj=file)) if packed else file
        self._unfinished = 0
        self._total = 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        try:
            data = self._bytes.read(min(len(buffer), _CHUNK))
        except EOFError as error:
            raise TraceError(f"{self.path} is cut off: its compressed data ends too early; copy it again") from error
        except (OSError, zlib.error) as error:
            raise TraceError(f"{self.path} cannot be unpacked: {error}; copy it again") from error
        self._unfinished += len(data)
        if self._unfinished > LONGEST:
            raise TraceError(f"{self.path} has a value of more than {LONGEST >> 20} MiB, which no profiler writes")
        self._total += len(data)
        if self._total > MOST:
            raise TraceError(
                f"{self.path} has more than {MOST >> 30} GiB, unpacked: profile fewer steps (three do), or without stacks"
            )
        buffer[: len(data)] = data
        return len(data)

    def progress(self) -> None:
        self._unfinished = 0

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
        super().close()


def head(path: Path) -> bytes:
    """The first `HEAD` bytes, unpacked."""
    with Source(path) as source:
        data = io.BufferedReader(source).read(HEAD)
    if not data:
        raise TraceError(f"{path} is empty")
    return data


def items(path: Path, key: str) -> Iterator[dict[str, Any]]:
    """The objects in the list ``key`` of the JSON object in ``path``, one at a time; whole numbers of any length are exact.

    With `ALL` as key: those of the list that the file is. With `LINES`: those that the file has one after the other.
    """
    given = 0
    for use_float in (True, False):  # the faster way first; it has no numbers of more than 63 bits
        try:
            for item in itertools.islice(_items(path, key, use_float), given, None):
                given += 1
                yield item
        except _LongNumberError:
            continue
        return


class _LongNumberError(Exception):
    """A whole number of more than 63 bits."""


def _items(path: Path, key: str, use_float: bool) -> Iterator[dict[str, Any]]:
    with Source(path) as source:
        shallow = _Shallow(source)
        prefix = "" if key == LINES else "item" if key == ALL else f"{key}.item"
        found = ijson.items(shallow, prefix, use_float=use_float, multiple_values=key == LINES)
        while True:
            try:
                item = next(found)
            except StopIteration:
                return
            except (ijson.JSONError, UnicodeDecodeError, ValueError) as error:
                reason = _reason(error)
                if use_float and "integer overflow" in reason:
                    raise _LongNumberError from error
                where = _broken_at(path, shallow.before, key == LINES)
                raise TraceError(f"{path} is not complete, valid JSON: {reason}, at byte {where:,}") from error
            source.progress()
            if not isinstance(item, dict):
                what = "it" if key in (ALL, LINES) else repr(key)
                raise TraceError(f"{path}: {what} has to hold objects, and one of its values is {brief(item)}")
            yield item if use_float else _with_floats(item)


def _reason(error: Exception) -> str:
    """The first line of the parser's message."""
    said = error.args[0] if error.args else ""
    text = said.decode(errors="replace") if isinstance(said, bytes) else str(error)
    return " ".join(text.split("\n")[0].split())


def _with_floats(value: Any) -> Any:
    """``value`` with a float for each decimal number."""
    if isinstance(value, Decimal):
        return float(value)
    if isinstance(value, dict):
        return {key: _with_floats(one) for key, one in value.items()}
    return [_with_floats(one) for one in value] if isinstance(value, list) else value


def _broken_at(path: Path, valid: int, multiple: bool) -> int:
    """The first byte at which the file is no JSON, unpacked and counted from 0; the first ``valid`` ones are."""
    parser = ijson.basic_parse_coro(ijson.sendable_list(), use_float=False, multiple_values=multiple)
    at = 0
    with Source(path) as source:
        try:
            while data := source.read(min(_CHUNK, valid - at) if at < valid else 1):
                source.progress()
                parser.send(data)
                at += len(data)
            parser.close()
        except (ijson.JSONError, UnicodeDecodeError, ValueError):
            pass
    return at


class _Shallow:
    """Bytes of JSON, refused where they nest too deeply: the parser's memory grows with depth squared."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self.before = 0  # bytes handed out before the latest ones
        self._latest = 0
        self._depth = 0
        self._in_string = False
        self._escape = b""  # a backslash at the end of what has been read

    def read(self, size: int = -1) -> bytes:
        data = self._source.read(size) or b""
        self.before, self._latest = self.before + self._latest, len(data)
        text = self._escape + data
        if b"\\" in text:
            text = _ESCAPED.sub(b"", text)
            self._escape = b"\\" if text.endswith(b"\\") else b""
        text = _STRING.sub(b"", b'"' * self._in_string + text.translate(None, _PLAIN))
        text, quote, _ = text.partition(b'"')
        self._in_string = bool(quote)
        depths = self._depth + np.frombuffer(text.translate(_STEPS), np.int8).cumsum(dtype=np.int64)
        if len(depths):
            self._depth = int(depths[-1])
            if depths.max() > DEEPEST:
                raise TraceError(f"{self._source.path} nests deeper than {DEEPEST} levels, which no profiler writes")
        return data


_ESCAPED = re.compile(rb"\\.", re.DOTALL)
_STRING = re.compile(rb'"[^"]*"')
_PLAIN = bytes(set(range(256)) - set(b'"[]{}\\'))
_STEPS = bytes.maketrans(b"[{]}\\", b"\1\1\xff\xff\0")


def number(record: dict[str, Any], field: str, where: str) -> float:
    """``record[field]``, which has to be a number of at least 0; ``where`` begins the message otherwise."""
    value = record.get(field)
    if field not in record:
        raise TraceError(f"{where} has no {field!r}")
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise TraceError(f"{where}: {field!r} is {brief(value)}, which is not a number")
    if not 0 <= value <= 1e18:
        raise TraceError(f"{where}: {field!r} is {brief(value)}. It must be a plausible number of at least 0")
    return value


def brief(value: object) -> str:
    """``value`` for a message: short, for any length of it."""
    return reprlib.repr(value)

"""The format of run directories: one number for all files of a run."""

from __future__ import annotations

from typing import Any

from testbed.core.errors import TestbedError

VERSION = 4


class OtherVersionError(TestbedError):
    """A run directory of another format version."""


def check_version(data: dict[str, Any]) -> dict[str, Any]:
    """What a file of a run directory (manifest, verdict, summary) holds, if it is of this program's format.

    Raises `OtherVersionError`, or `ValueError` for what names no version.
    """
    version = data["version"]
    if not isinstance(version, int) or isinstance(version, bool) or version < 1:
        raise ValueError("it names no format version")
    if version != VERSION:
        raise OtherVersionError(f"is of format version {version}, and this program reads version {VERSION} alone")
    return data

"""The format of run directories: one number for all files of a run."""

from __future__ import annotations

from typing import Any

from testbed.core.errors import TestbedError

VERSION = 4


class OtherVersionError(TestbedError):
    """A run directory of another format version."""


def check_version(data: dict[str, Any]) -> dict[str, Any]:
    """Return the content of a manifest, verdict, or summary if it has this program's format version.

    Raises `OtherVersionError` for another version, and `ValueError` if ``data`` names none.
    """
    version = data["version"]
    if not isinstance(version, int) or isinstance(version, bool) or version < 1:
        raise ValueError("it names no format version")
    if version != VERSION:
        raise OtherVersionError(f"is of format version {version}, and this program reads version {VERSION} alone")
    return data

"""Parse TOML that users write; refuse deep nesting before it costs time or memory."""

from __future__ import annotations

import tomllib
from typing import Any

from testbed.core.errors import RequestError
from testbed.core.text import shown

MOST_DOTS = 200  # in one line: a key of n parts costs time and memory in n²


class TomlError(RequestError):
    """Text that is not TOML, or that no experiment can mean; the message gives the reason."""


def loads(text: str) -> dict[str, Any]:
    """The content of ``text``; raises `TomlError`."""
    for number, line in enumerate(text.splitlines(), 1):
        if line.count(".") > MOST_DOTS:
            raise TomlError(f"line {number} has {line.count('.')} dots, but the limit is {MOST_DOTS}")
    try:
        return tomllib.loads(text)
    except RecursionError as error:
        raise TomlError("it is nested too deeply") from error
    except ValueError as error:  # also: an integer of thousands of digits
        raise TomlError(shown(error, 200)) from error

"""Errors of figure commands for results that they cannot use."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from pathlib import Path

from testbed.core import text
from testbed.core.errors import RequestError


def check_there(folders: Iterable[Path]) -> None:
    """Raises `RequestError` for a folder that is not there, before anything slow is imported."""
    for folder in folders:
        if not os.path.isdir(folder):  # unlike Path.is_dir, os.path.isdir raises no error for any name
            why = "is a file" if os.path.exists(folder) else "is not there"
            raise RequestError(
                f"the folder {text.shown(folder, 200)} {why}. Name a results folder, such as results, or the folder of one experiment."
            )


def unusable(error: Exception, what: object) -> None:
    """Report why results cannot be used, without a traceback for any content of a foreign run directory."""
    from testbed.core.runs.load import LoadError

    why = (
        str(error)
        if isinstance(error, LoadError)
        else f"these results cannot be used ({type(error).__name__}: {error})"
    )
    print(text.paragraph(f"error: {what}: {why}"), file=sys.stderr)

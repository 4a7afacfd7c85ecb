"""What a figure command reports of results that it cannot use."""

from __future__ import annotations

import sys

from testbed.core import text
from testbed.core.runs.load import LoadError


def unusable(error: Exception, what: object) -> None:
    """Report why results cannot be used, without a traceback for any content of a foreign run directory."""
    why = (
        str(error)
        if isinstance(error, LoadError)
        else f"these results cannot be used ({type(error).__name__}: {error})"
    )
    print(text.paragraph(f"error: {what}: {why}"), file=sys.stderr)

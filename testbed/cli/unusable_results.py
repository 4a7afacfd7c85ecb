"""What a figure command reports of results that it cannot use."""

from __future__ import annotations

import sys

from testbed.core import text
from testbed.core.runs.load import LoadError


def unusable(error: Exception, what: object) -> None:
    """Say why results cannot be used: whatever a foreign run directory holds, there is no traceback."""
    why = (
        str(error)
        if isinstance(error, LoadError)
        else f"these results cannot be used ({type(error).__name__}: {error})"
    )
    print(text.paragraph(f"error: {what}: {why}"), file=sys.stderr)

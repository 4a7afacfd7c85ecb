"""``python -m testbed`` and ``mltcp``: every command of `testbed.cli`."""

from __future__ import annotations

import os
import sys


def main() -> int:
    """The command ``mltcp``; its exit code."""
    from testbed.core import start

    return start.command("testbed", "testbed.cli", sys.argv[1:])


if __name__ == "__main__":
    # `python -m` puts the current folder first, and none of its modules is meant. Started with -P it does not.
    if not getattr(sys.flags, "safe_path", False):
        sys.path[0] = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    sys.exit(main())

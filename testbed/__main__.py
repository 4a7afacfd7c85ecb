"""``python -m testbed``: every command of `testbed.cli`."""

from __future__ import annotations

import sys

from core.environment import enter

if __name__ == "__main__":
    enter("testbed")

    from core import ending, interruption

    sys.exit(interruption.guarded(lambda: ending.run("testbed.cli", sys.argv[1:])))

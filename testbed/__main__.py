"""``python -m testbed``: every command of `testbed.cli`."""

from __future__ import annotations

import sys

from core.environment import enter

if __name__ == "__main__":
    enter("testbed")

    from core import interruption

    def command() -> int:
        from testbed.cli import main

        return main(sys.argv[1:])

    sys.exit(interruption.guarded(command))

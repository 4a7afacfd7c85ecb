"""``python -m testbed``: every command of `testbed.cli`."""

from __future__ import annotations

import sys

from core.environment import enter

if __name__ == "__main__":
    enter("testbed")

    from testbed.cli import main

    sys.exit(main(sys.argv[1:]))

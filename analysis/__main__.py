"""``python -m analysis``, in the checkout's environment; see `testbed.cli`."""

from __future__ import annotations

import os
import sys

if __name__ == "__main__":
    # `python -m` puts the current folder first, and none of its modules is meant. Started with -P it does not.
    if not getattr(sys.flags, "safe_path", False):
        sys.path[0] = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))

    from testbed.core import start

    sys.exit(start.command("analysis", "testbed.cli", sys.argv[1:]))

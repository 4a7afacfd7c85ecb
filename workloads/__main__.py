"""``python -m workloads``, in the checkout's environment; see `workloads.cli`."""

from __future__ import annotations

import sys

from core.environment import enter

if __name__ == "__main__":
    enter("workloads")

    from core import ending, interruption

    interruption.listen()
    sys.exit(interruption.guarded(lambda: ending.run("workloads.cli", sys.argv[1:])))

"""``python -m workloads``, in the checkout's environment; see `workloads.cli`."""

from __future__ import annotations

import sys

from core.environment import enter

if __name__ == "__main__":
    enter("workloads")

    from core import interruption

    interruption.listen()

    def command() -> int:
        from workloads.cli import main

        return main(sys.argv[1:])

    sys.exit(interruption.guarded(command))

"""``python -m transports``, in the checkout's environment; see `transports.cli`."""

from __future__ import annotations

import sys

from core.environment import enter

if __name__ == "__main__":
    enter("transports")

    from core import ending, interruption

    interruption.listen()
    sys.exit(interruption.guarded(lambda: ending.run("transports.cli", sys.argv[1:])))

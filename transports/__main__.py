"""``python -m transports``, in the checkout's environment; see `transports.cli`."""

from __future__ import annotations

import sys

from core.environment import enter

if __name__ == "__main__":
    enter("transports")

    from core import interruption

    interruption.listen()

    def command() -> int:
        from transports.cli import main

        return main(sys.argv[1:])

    sys.exit(interruption.guarded(command))

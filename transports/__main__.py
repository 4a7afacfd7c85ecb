"""``python -m transports``, in the checkout's environment; see `transports.cli`."""

from __future__ import annotations

import sys

from core.environment import enter

if __name__ == "__main__":
    enter("transports")

    from transports.cli import main

    sys.exit(main(sys.argv[1:]))

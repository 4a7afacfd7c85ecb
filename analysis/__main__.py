"""``python -m analysis``, in the checkout's environment; see `analysis.cli`."""

from __future__ import annotations

import sys

from core.environment import enter

if __name__ == "__main__":
    enter("analysis")

    from analysis.cli import main

    sys.exit(main(sys.argv[1:]))

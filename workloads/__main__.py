"""``python -m workloads``, in the checkout's environment; see `workloads.cli`."""

from __future__ import annotations

import sys

from core.environment import enter

if __name__ == "__main__":
    enter("workloads")

    from workloads.cli import main

    sys.exit(main(sys.argv[1:]))

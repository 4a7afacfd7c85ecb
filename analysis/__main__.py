"""``python -m analysis``, in the checkout's environment; see `analysis.cli`."""

from __future__ import annotations

import os
import sys

from core.environment import enter

if __name__ == "__main__":
    # Matrices are small: threads cost more than they save, and add up in another order where there are more cores.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    enter("analysis")

    from core import ending, interruption

    interruption.listen()
    sys.exit(interruption.guarded(lambda: ending.run("analysis.cli", sys.argv[1:])))

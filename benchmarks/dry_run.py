"""Duration of the dry run of a large spec, compared with another revision: ``python -m benchmarks.dry_run [REVISION]``.

Twelve jobs on a fat tree, by this checkout and by REVISION, alternately, so that a busy machine slows both. Needs no
privilege and no kernel.
"""

from __future__ import annotations

import time
from pathlib import Path
from statistics import median

from benchmarks import revisions

BEFORE = "3707097"  # the revision for comparison
ROUNDS = 7
REQUEST = (
    "--topo",
    "fattree",
    "--jobs",
    "12",
    "--workers",
    "8",
    "--trace",
    "resnet50",
    "--rate",
    "1gbit",
    "--dry-run",
)


def main() -> None:
    revision, took = revisions.in_turn(BEFORE, ROUNDS, dry_run_s)
    for name, seconds in took.items():
        print(f"{name:12} {median(seconds):6.2f} s  (of {ROUNDS}: {min(seconds):.2f} to {max(seconds):.2f})")
    print(f"ratio        {median(took[revisions.HERE]) / median(took[revision]):6.2f}")


def dry_run_s(tree: Path) -> float:
    """Wall seconds of the command, start of Python and all."""
    begun = time.perf_counter()
    revisions.run(tree, *REQUEST)
    return time.perf_counter() - begun


if __name__ == "__main__":
    main()

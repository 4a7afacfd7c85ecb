"""How long the dry run of a large spec takes, against that of another revision: ``python benchmarks/dry_run.py [REVISION]``.

Twelve jobs on a fat tree, by this checkout and by REVISION (as it was before the house was rebuilt), in turn, so that
a busy machine slows both. Needs no privilege and no kernel.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from statistics import median

from core.environment import ROOT

BEFORE = "3707097"  # the last revision before the rooms were made
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
    revision = sys.argv[1] if len(sys.argv) > 1 else BEFORE
    tree = Path(ROOT) / "build" / "dry_run" / revision
    if not tree.exists():
        tree.mkdir(parents=True)
        files = subprocess.run(["git", "-C", ROOT, "archive", revision], capture_output=True, check=True).stdout
        subprocess.run(["tar", "-x", "-C", str(tree)], input=files, check=True)
    took: dict[str, list[float]] = {"here": [], revision: []}
    for _ in range(ROUNDS):
        took["here"].append(dry_run_s(Path(ROOT)))
        took[revision].append(dry_run_s(tree))
    for name, seconds in took.items():
        print(f"{name:12} {median(seconds):6.2f} s  (of {ROUNDS}: {min(seconds):.2f} to {max(seconds):.2f})")
    print(f"ratio        {median(took['here']) / median(took[revision]):6.2f}")


def dry_run_s(tree: Path) -> float:
    """Wall seconds of the command, start of Python and all."""
    begun = time.perf_counter()
    subprocess.run(
        [sys.executable, str(tree / "testbed" / "run.py"), *REQUEST], cwd=tree,
        env={**os.environ, "PYTHONPATH": str(tree)}, stdout=subprocess.DEVNULL, check=True,
    )  # fmt: skip
    return time.perf_counter() - begun


if __name__ == "__main__":
    main()

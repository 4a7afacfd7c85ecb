"""What a run costs before its first packet: ``python benchmarks/start.py [REVISION]``.

The smallest run there is (one job, one iteration of a millisecond) in user-mode Linux, by this checkout and by REVISION, in turn, so that a
busy machine slows both: wall time of a run, as its manifest says it, and of the whole command.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

from core.environment import ROOT

BEFORE = "40ed5b8"
ROUNDS = 7
REQUEST = (
    "--jobs", "1", "--rate", "100mbit", "--compute", "1ms", "--bytes", "10kB", "--iterations", "1", "--system", "reno", "--alone", "none",
    "--on", "uml", "--name", "start",
)  # fmt: skip


def main() -> None:
    revision = sys.argv[1] if len(sys.argv) > 1 else BEFORE
    tree = Path(ROOT) / "build" / "start" / revision
    if not tree.exists():
        tree.mkdir(parents=True)
        files = subprocess.run(["git", "-C", ROOT, "archive", revision], capture_output=True, check=True).stdout
        subprocess.run(["tar", "-x", "-C", str(tree)], input=files, check=True)
    took: dict[str, list[tuple[float, float]]] = {"here": [], revision: []}
    for number in range(ROUNDS + 1):
        for name, where in (("here", Path(ROOT)), (revision, tree)):
            found = run_s(where)
            if number:  # the first time, modules are built and Python's files compiled
                took[name].append(found)
    for column, what in enumerate(("a run", "the command")):
        here, before = (median(each[column] for each in took[name]) for name in ("here", revision))
        print(f"{what:12} {here:6.2f} s, {revision} {before:6.2f} s, ratio {here / before:.2f} (medians of {ROUNDS})")


def run_s(tree: Path) -> tuple[float, float]:
    """Wall seconds of the run, and of the command around it."""
    with tempfile.TemporaryDirectory() as out:
        begun = time.perf_counter()
        subprocess.run(
            [sys.executable, str(tree / "testbed" / "run.py"), *REQUEST, "--out", out], cwd=tree,
            env={**os.environ, "PYTHONPATH": str(tree)}, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True,
        )  # fmt: skip
        whole_s = time.perf_counter() - begun
        [manifest] = Path(out).rglob("manifest.json")
        return float(json.loads(manifest.read_text())["wall_s"]), whole_s


if __name__ == "__main__":
    main()

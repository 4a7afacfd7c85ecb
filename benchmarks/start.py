"""The cost of a run before its first packet: ``python -m benchmarks.start [REVISION]``.

The smallest run (one job, one iteration of a millisecond) in user-mode Linux, by this checkout and by REVISION, alternately:
wall time of a run, from its manifest, and of the complete command.
"""

from __future__ import annotations

import json
import tempfile
import time
from pathlib import Path
from statistics import median

from benchmarks import revisions

BEFORE = "40ed5b8"
ROUNDS = 7
REQUEST = (
    "--jobs", "1", "--rate", "100mbit", "--compute", "1ms", "--bytes", "10kB", "--iterations", "1", "--system", "reno", "--alone", "none",
    "--on", "uml", "--name", "start",
)  # fmt: skip


def main() -> None:
    revision, took = revisions.in_turn(BEFORE, 1 + ROUNDS, run_s)
    for column, what in enumerate(("a run", "the command")):
        # Without the first, in which modules are built and Python's files compiled.
        here, before = (median(each[column] for each in took[name][1:]) for name in (revisions.HERE, revision))
        print(f"{what:12} {here:6.2f} s, {revision} {before:6.2f} s, ratio {here / before:.2f} (medians of {ROUNDS})")


def run_s(tree: Path) -> tuple[float, float]:
    """Wall seconds of the run, and of the command around it."""
    with tempfile.TemporaryDirectory() as out:
        begun = time.perf_counter()
        revisions.run(tree, *REQUEST, "--out", out)
        whole_s = time.perf_counter() - begun
        [manifest] = Path(out).rglob("manifest.json")
        return float(json.loads(manifest.read_text())["wall_s"]), whole_s


if __name__ == "__main__":
    main()

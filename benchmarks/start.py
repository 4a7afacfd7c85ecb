"""The cost of a run before its first packet: ``python -m benchmarks.start [REVISION]``.

The smallest run (one job, one iteration of a millisecond) in user-mode Linux, by this checkout and by REVISION, in turn:
wall time from the command to the end of the first iteration (limit: 1.0 s), of the run, from its manifest, and of the whole command.
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

from benchmarks import revisions

BEFORE = "29473499"
ROUNDS = 7
REQUEST = (
    "run", "--jobs", "1", "--rate", "100mbit", "--compute", "1ms", "--bytes", "10kB", "--iterations", "1", "--system", "reno", "--alone", "none",
    "--on", "uml", "--name", "start",
)  # fmt: skip
# `mltcp`, which also writes to a file when the first iteration has ended.
COMMAND = """
import pathlib, sys, time
from testbed.__main__ import main
def hook():
    from testbed.backends import uml
    from testbed.core.runs.events import Iteration
    run, file = uml.Uml.run, pathlib.Path(sys.argv.pop())
    def timed(self, plan, on_event, *rest, **options):
        def heard(event):
            if isinstance(event, Iteration) and not file.exists():
                file.write_text(str(time.time()))
            on_event(event)
        return run(self, plan, heard, *rest, **options)
    uml.Uml.run = timed
hook()
sys.exit(main())
"""


def main() -> None:
    revision, took = revisions.in_turn(BEFORE, 1 + ROUNDS, run_s)
    for column, what in enumerate(("to the first iteration", "the run", "the command")):
        # Without the first, in which modules are built and Python's files compiled.
        here, before = (median(each[column] for each in took[name][1:]) for name in (revisions.HERE, revision))
        print(f"{what:22} {here:6.2f} s, {revision} {before:6.2f} s, ratio {here / before:.2f} (medians of {ROUNDS})")


def run_s(tree: Path) -> tuple[float, float, float]:
    """Wall seconds from the command to its first iteration, of the run, and of the command."""
    with tempfile.TemporaryDirectory() as folder:
        out, first = Path(folder, "out"), Path(folder, "first")
        begun = time.time()
        subprocess.run(
            [sys.executable, "-P", "-c", COMMAND, *REQUEST, "--out", str(out), str(first)], cwd=tree,
            env={**os.environ, "PYTHONPATH": str(tree)}, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True,
        )  # fmt: skip
        whole_s = time.time() - begun
        [manifest] = out.rglob("manifest.json")
        return float(first.read_text()) - begun, float(json.loads(manifest.read_text())["wall_s"]), whole_s


if __name__ == "__main__":
    main()

"""``make demo-host``: run the demo's main job under virtual time and on this machine's kernel, and compare.

A real clock may invalidate its run. The comparison shows this, and does not fail.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
RESULTS = Path("results")
SUDO = [] if os.geteuid() == 0 else ["sudo"]
MACHINE, INVALID = 3, 4  # exit codes; of an invalid run a real clock may be the reason


def main(flags: list[str]) -> int:
    """Run both with ``flags`` and compare them; 0 for any result of the real clock."""
    code = run([sys.executable, "testbed/run.py", *flags, "--on", "uml", "--name", "demo.uml"])
    if code:
        return code
    if SUDO and run([*SUDO, "-v"]):
        print("\nVerdict on this machine's kernel: none; a run on it takes root, and sudo gave none.")
        return MACHINE
    code = run([*SUDO, sys.executable, "testbed/run.py", *flags, "--on", "host", "--name", "demo.host"])
    if code not in (0, INVALID):
        print("\nVerdict on this machine's kernel: none; the run did not get to its end, for the reason above.")
        return code
    folders = [RESULTS / "demo.uml", RESULTS / "demo.host"]
    run([sys.executable, "-m", "analysis", "compare", *map(str, folders), "--out", str(RESULTS / "demo.compared")])
    verdicts = [json.loads((folder / "summary.json").read_text())["verdict"] for folder in folders]
    print(f"\nVerdict under virtual time: {verdicts[0]}\nVerdict on this machine's kernel: {verdicts[1]}", end="")
    print("; its clock is real, and something kept it from being on time" if verdicts[1] == "invalid" else "")
    return 0


def run(command: list[str]) -> int:
    """Show a command and run it; its exit code."""
    print("\n" + " ".join(command), flush=True)
    return subprocess.run(command, cwd=ROOT, check=False).returncode


if __name__ == "__main__":
    os.chdir(ROOT)
    sys.exit(main(sys.argv[1:]))

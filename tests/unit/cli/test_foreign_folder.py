"""Commands that are started in a folder of the user's: none of its modules is imported in place of ours."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

NAMES = ("core", "testbed_own", "msgspec", "numpy", "pandas", "rich", "random", "mininet", "topologies", "congestion")


@pytest.mark.parametrize(
    "words",
    [
        ["testbed", "schema"],
        ["testbed", "run", "--dry-run"],
        ["workloads", "list"],
        ["analysis", "--help"],
        ["testbed.transports", "--help"],
    ],
    ids=" ".join,
)
def test_modules_of_the_current_folder_are_not_imported(tmp_path: Path, words: list[str]) -> None:
    for name in NAMES:
        (tmp_path / f"{name}.py").write_text(f"raise SystemExit('{name} of the folder')\n")
    done = subprocess.run([sys.executable, "-m", *words], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0 and "of the folder" not in done.stderr, done.stderr

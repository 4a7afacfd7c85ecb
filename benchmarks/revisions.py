"""Compare this checkout with another revision, alternately, so that a busy machine slows both."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from testbed.core.environment import ROOT

HERE = "here"
Taken = TypeVar("Taken")


def in_turn(before: str, rounds: int, measure: Callable[[Path], Taken]) -> tuple[str, dict[str, list[Taken]]]:
    """Return the revision (from the command line, else ``before``), and ``rounds`` results of ``measure`` for each of
    the two, measured alternately."""
    revision = sys.argv[1] if len(sys.argv) > 1 else before
    trees = {HERE: Path(ROOT), revision: _tree(revision)}
    measured: dict[str, list[Taken]] = {name: [] for name in trees}
    for _ in range(rounds):
        for name, tree in trees.items():
            measured[name].append(measure(tree))
    return revision, measured


def run(tree: Path, *words: str, check: bool = True) -> None:
    """``testbed/run.py`` of a checkout, silently."""
    subprocess.run(
        [sys.executable, str(tree / "testbed" / "run.py"), *words], cwd=tree, env={**os.environ, "PYTHONPATH": str(tree)},
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=check,
    )  # fmt: skip


def _tree(revision: str) -> Path:
    tree = Path(ROOT) / "build" / "revisions" / revision
    if not tree.exists():
        tree.mkdir(parents=True)
        files = subprocess.run(["git", "-C", ROOT, "archive", revision], capture_output=True, check=True).stdout
        subprocess.run(["tar", "-x", "-C", str(tree)], input=files, check=True)
    return tree

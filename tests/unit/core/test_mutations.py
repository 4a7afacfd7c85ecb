"""Mutated command lines, TOML files, job lists and profiles: no traceback, no exit code outside the list, nothing above 60 s or 2 GB."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support import mutations
from tests.support.paths import ROOT

SHORT = {
    **dict.fromkeys(mutations.RECORDS, 100),
    "command_line": 60,
    "job_list": 60,
    "profile": 150,
    "acme": 50,
    "slurm": 100,
    "traced": 50,
    "work": 100,
    "simai": 100,
    "goal": 100,
}
LONG = {**dict.fromkeys(SHORT, 2000), "command_line": 5000}


def driven(kind: str, count: int, folder: Path) -> tuple[list[dict[str, object]], dict[str, object]]:
    """The requests that failed, and the summary."""
    words = [sys.executable, "-m", "tests.support.mutation_runs", kind, "0", str(count), str(folder)]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False)
    lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    assert lines and "requests" in lines[-1], done.stderr[-2000:]
    return lines[:-1], lines[-1]


@pytest.mark.parametrize("kind", SHORT)
def test_mutated_requests_end_in_order(kind: str, tmp_path: Path) -> None:
    failed, summary = driven(kind, SHORT[kind], tmp_path)
    assert not failed and summary["requests"] == SHORT[kind]


@pytest.mark.long
@pytest.mark.parametrize("kind", LONG)
def test_thousands_of_mutated_requests_end_in_order(
    kind: str, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    failed, summary = driven(kind, LONG[kind], tmp_path)
    record_property(kind, summary)
    assert not failed, failed[:3]

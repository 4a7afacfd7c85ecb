"""Runs as the tests make them: one plan on a substrate, or the command as a user types it."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any

import pandas as pd

from testbed import plan, rundir, spec
from testbed.substrates import Substrate

ROOT = Path(__file__).parents[1]
# In front of a command: Ctrl-C and a closed terminal work, even if the tests themselves run in the background of a shell.
INTERRUPTIBLE = ["/usr/bin/env", "--default-signal=INT,HUP"]


@dataclass(frozen=True)
class Result:
    """One run's files."""

    files: dict[str, bytes]

    def table(self, name: str) -> pd.DataFrame:
        return pd.read_csv(BytesIO(self.files[name]))

    @property
    def manifest(self) -> dict[str, Any]:
        return dict(json.loads(self.files["manifest.json"]))


def one_plan(alone: bool = False, **fields: Any) -> plan.Plan:
    """The (only) plan of a spec, or that of its first job alone."""
    wanted = 0 if alone else None
    (one,) = [one for one in plan.plans(spec.read(None, fields)) if one.alone == wanted]
    return one


def run_plan(substrate: Substrate, alone: bool = False, **fields: Any) -> Result:
    """Run the (only) plan of a spec, or its job alone, and nothing else."""
    one = one_plan(alone, **fields)
    substrate.check(one)
    return Result(rundir.unpack(substrate.run(one, lambda event: None, 240)))


def cli(*arguments: str, cwd: Path, **options: Any) -> subprocess.CompletedProcess[str]:
    """The command as a user runs it."""
    return subprocess.run(
        [sys.executable, str(ROOT / "testbed" / "run.py"), *arguments],
        cwd=cwd, capture_output=True, text=True, check=False, **options,
    )  # fmt: skip

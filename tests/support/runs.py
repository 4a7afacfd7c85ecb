"""Runs as the tests make them: one plan on a backend, or the command as a user types it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any

import msgspec
import pandas as pd
import pytest

from testbed import spec
from testbed.backends import Backend
from testbed.backends.progress import patience
from testbed.campaign.tasks import Completed, Task, carry_out
from testbed.campaign.verdict import Case
from testbed.core.runs import rundir
from testbed.core.runs.manifest import Manifest, Told
from testbed.core.runs.plan import Plan
from testbed.planning import plan
from tests.support.manifests import manifest

ROOT = Path(__file__).parents[2]
# In front of a command: Ctrl-C and a closed terminal work, even if the tests themselves run in the background of a shell.
INTERRUPTIBLE = ["/usr/bin/env", "--default-signal=INT,HUP"]
# On a real clock two runs of one plan differ: one in six of a marginal case fails by chance alone, three in a row do not.
ATTEMPTS = 3
# What tells that a machine spoiled a run: the link's rate and use, losses, lateness, what was touched. A busy core or stolen
# time (I7) is no excuse by itself: where a machine always has some, no test would ever count.
SPOILED = ("I3", "I4", "I5", "I6", "I19", "I21")


KILLS = int(os.environ.get("MLTCP_KILLS", "100"))


def rounds(usual: int) -> list[Any]:
    """Numbers of repetitions: a few in every run of the tests, all of MLTCP_KILLS=100 in `make test-long`."""
    return some(range(KILLS), *range(usual))


def some(values: Iterable[Any], *usual: Any, mark: pytest.MarkDecorator = pytest.mark.long) -> list[Any]:
    """Values of a parameter: the usual ones run always, the others only where ``mark`` is asked for (default: `make test-long`)."""
    return [
        one if one in usual else pytest.param(*(one if isinstance(one, tuple) else (one,)), marks=mark)
        for one in values
    ]


@dataclass(frozen=True)
class Result:
    """One run's files."""

    files: dict[str, bytes]

    def table(self, name: str) -> pd.DataFrame:
        return pd.read_csv(BytesIO(self.files[name]))

    @property
    def manifest(self) -> dict[str, Any]:
        return dict(json.loads(self.files["manifest.json"]))


# Hosts and links of a command that says nothing of them.
DEFAULT: dict[str, Any] = {"nic": "100%", "ecn": "on", "buffer": "200p", "preset": "recommended"}
# Hosts that nothing holds up, links that drop, MLTCP as the paper has it: what the physics is computed for.
UNLIMITED: dict[str, Any] = {"nic": "inf", "ecn": "off", "buffer": "1ms", "preset": "paper"}


def copy_checkout(folder: Path) -> Path:
    """The project's own files, to be changed there; returns ``folder``."""
    for name in ("testbed", "topologies", "workloads", "analysis", "kernel", "experiments"):
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", folder)
    return folder


def one_plan(alone: bool = False, **fields: Any) -> Plan:
    """The (only) plan of a spec with `UNLIMITED` hosts, or that of its first job alone."""
    wanted = 0 if alone else None
    asked = {"isolated_runs": "each" if alone else "auto", **UNLIMITED, **fields}
    (one,) = [one for one in plan.plans(plan.resolve(spec.read(None, asked))) if one.alone == wanted]
    return one


def run_plan(backend: Backend, alone: bool = False, **fields: Any) -> Result:
    """Run the (only) plan of a spec, or its job alone, and nothing else."""
    one = one_plan(alone, **fields)
    backend.check(one)
    return Result(rundir.unpack(backend.run(one, lambda event: None, patience(one))))


def spoiled(verdict: dict[str, Any]) -> bool:
    """Whether the machine, by a run's own verdict, may have changed what it measured."""
    return verdict["verdict"] == "invalid" or any(
        row["id"] in SPOILED and row["status"] == "suspect" for row in verdict["invariants"]
    )


def shown_in_real_time(check: Callable[[Result], None], alone: bool = False, **fields: Any) -> None:
    """``check`` a run on this machine's kernel, as far as the run's own verdict lets it.

    One run in a few attempts must stand it, spoiled or not: what does not work never does. If none does, a run that nothing
    spoiled fails the test; with spoiled ones alone it is skipped: a real clock does not promise more. Physics itself is proved
    under virtual time, in tests/uml.
    """
    one = one_plan(alone, **fields)
    failed: AssertionError | None = None
    for _ in range(ATTEMPTS):
        outcome = carry_out(Task(one, "host", retries=0))
        assert isinstance(outcome, Completed), outcome
        result = Result(outcome.files)
        verdict = json.loads(result.files["verdict.json"])
        if verdict["verdict"] == "invalid":
            continue
        try:
            return check(result)
        except AssertionError as error:
            if not spoiled(verdict):
                failed = error
    if failed is not None:
        raise failed
    rows = [row for row in verdict["invariants"] if row["status"] in ("suspect", "invalid")]
    pytest.skip(
        f"this machine disturbed {ATTEMPTS} runs: "
        + "; ".join(f"{row['id']} {row['name']}: {row['value']}" for row in rows)
    )


def cli(*arguments: str, cwd: Path, **options: Any) -> subprocess.CompletedProcess[str]:
    """The command as a user runs it."""
    return subprocess.run(
        [sys.executable, str(ROOT / "testbed" / "run.py"), *arguments],
        cwd=cwd, capture_output=True, text=True, check=False, **options,
    )  # fmt: skip


def case(result: Result) -> Case:
    """A run to be judged, with a provenance of no consequence."""
    handed = msgspec.json.decode(result.files["manifest.json"], type=Told)
    tables = {name: result.table(f"{name}.csv") for name in ("iterations", "links", "flows")}
    return Case(Manifest.assemble(handed, manifest(handed.plan).made, digest="", disturbances=None), **tables)

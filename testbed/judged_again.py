"""``python -m testbed judge RESULTS``: stored runs, judged by the rules of this testbed.

A verdict follows from what a run has stored; where the rules have become better, the runs need not be repeated.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import msgspec

from analysis.load import LoadError, check, load_run
from testbed import rundir
from testbed.plan import Plan
from testbed.verdict import judge


def judge_again(folder: Path) -> Iterator[tuple[Path, str, str]]:
    """Every run in ``folder`` with its verdict before and now, which is stored.

    Raises `LoadError` if there is none, or one cannot be read; those before it are judged.
    """
    manifests = sorted(folder.rglob("manifest.json"))
    if not manifests:
        raise LoadError(f"{folder} holds no run; name a run directory, or a folder with some, such as results")
    for manifest in manifests:
        run = load_run(manifest.parent)
        check(run)
        try:
            plan = msgspec.convert(run.manifest["plan"], Plan)
        except msgspec.ValidationError as error:
            raise LoadError(
                f"{manifest}: its plan is another testbed's ({error}); it can only be judged by that one"
            ) from error
        verdict = judge(run.iterations, run.links, plan, run.manifest)
        if verdict != run.verdict:
            rundir.write_text(run.path / "verdict.json", json.dumps(verdict, indent=1) + "\n")
        yield run.path, run.verdict["verdict"], verdict["verdict"]

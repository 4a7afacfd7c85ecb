"""When a test on a real clock counts: `tests.runs.shown_in_real_time`, on verdicts made up."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from testbed.campaign import experiment
from testbed.substrates.host import Host
from tests import runs


def verdict(**statuses: str) -> dict[str, Any]:
    invariants = [{"id": name, "name": name, "value": 1, "status": status} for name, status in statuses.items()]
    worst = max(("valid", *statuses.values()), key=["valid", "ok", "not evaluated", "suspect", "invalid"].index)
    return {"verdict": worst if worst in ("suspect", "invalid") else "valid", "invariants": invariants}


@pytest.mark.parametrize(
    ("found", "spoiled"),
    [
        (verdict(I3="ok", I4="not evaluated"), False),
        (verdict(I3="ok", I7="suspect"), False),
        (verdict(I3="suspect"), True),
        (verdict(I4="suspect"), True),
        (verdict(I6="suspect"), True),
        (verdict(I21="suspect"), True),
        (verdict(I7="invalid"), True),
    ],
)
def test_a_failure_counts_unless_the_machine_spoiled_the_run(
    monkeypatch: pytest.MonkeyPatch, found: dict[str, Any], spoiled: bool
) -> None:
    made: list[Path] = []

    def execute(one: Any, asked: Any, host: Any, out: Path, *_: Any, **__: Any) -> None:
        folder = out / one.experiment / one.folder
        folder.mkdir(parents=True)
        (folder / "verdict.json").write_text(json.dumps(found))
        made.append(folder)

    def check(result: runs.Result) -> None:
        raise AssertionError("no physics")

    monkeypatch.setattr(experiment, "execute", execute)
    monkeypatch.setattr(Host, "check", lambda self, one: None)
    with pytest.raises(pytest.skip.Exception if spoiled else AssertionError):
        runs.shown_in_real_time(check, cc=["reno"], alone=True)
    assert len(made) == (runs.ATTEMPTS if spoiled else 1)

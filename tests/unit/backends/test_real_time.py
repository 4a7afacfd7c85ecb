"""When a test on a real clock counts: `tests.support.runs.shown_in_real_time`, on verdicts made up."""

from __future__ import annotations

import json
from typing import Any

import pytest

from testbed.campaign.tasks import Completed, Task
from tests.support import runs


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
def test_failures_count_unless_the_machine_spoiled_every_run(
    monkeypatch: pytest.MonkeyPatch, found: dict[str, Any], spoiled: bool
) -> None:
    made: list[Task] = []

    def carry_out(task: Task) -> Completed:
        made.append(task)
        return Completed({"verdict.json": json.dumps(found).encode()}, found["verdict"], None)

    def check(result: runs.Result) -> None:
        raise AssertionError("no physics")

    monkeypatch.setattr(runs, "carry_out", carry_out)
    with pytest.raises(pytest.skip.Exception if spoiled else AssertionError):
        runs.shown_in_real_time(check, cc=["reno"], alone=True)
    assert len(made) == runs.ATTEMPTS


def test_what_is_shown_once_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Task] = []

    def carry_out(task: Task) -> Completed:
        made.append(task)
        return Completed({"verdict.json": json.dumps(verdict(I3="ok")).encode()}, "valid", None)

    def check(result: runs.Result) -> None:
        assert len(made) == runs.ATTEMPTS

    monkeypatch.setattr(runs, "carry_out", carry_out)
    runs.shown_in_real_time(check, cc=["reno"], alone=True)
    assert len(made) == runs.ATTEMPTS

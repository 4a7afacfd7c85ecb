"""A note where a job's counted iterations end long before those of the longest job."""

from __future__ import annotations

from typing import Any

import pytest

from testbed import spec
from testbed.planning.plan import planned

SHORT, LONG = {"compute": "50ms", "bytes": "100kB"}, {"compute": "2s", "bytes": "100kB"}


def notes(*jobs: dict[str, Any], **fields: Any) -> list[str]:
    request = {"job": list(jobs), "system": ["reno"], "iterations": 6, **fields}
    plan = planned(spec.read(None, request))[1][0]
    return [note for note in plan.notes if "measured only" in note]


def test_a_short_job_next_to_a_long_one_is_noted() -> None:
    (note,) = notes(SHORT, LONG, start_offsets="0ms,0ms")
    assert note.startswith("job 0 (synthetic) is measured only in the first 2.6 % of the run")
    assert notes({**SHORT, "iterations": 231}, LONG, start_offsets="0ms,0ms") == []


@pytest.mark.parametrize("jobs", [(SHORT, SHORT), ({**SHORT, "leave": "1s"}, LONG)])
def test_jobs_of_like_length_and_those_that_leave_are_not(jobs: tuple[dict[str, Any], ...]) -> None:
    assert notes(*jobs, start_offsets="0ms,0ms") == []

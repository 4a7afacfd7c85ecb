"""A run that repeats itself is found out, and its rest follows."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from testbed.core.errors import RequestError
from testbed.core.runs.manifest import Period
from testbed.linux.participants.period_detection import Repeating
from testbed.linux.participants.workers import Record
from testbed.planning import plan
from testbed.spec import read


def record(job: int, iteration: int, start: int, *, lasts: int = 90, cwnd: int = 10) -> Record:
    end = start + lasts
    return Record(job, 0, iteration, start, start + 50, end, 1000, 0, [["exchange", start + 50, end]], b"", [[cwnd, 7]])


def heard(records: Sequence[Record], wanted: int = 30, alike: int = 3) -> Repeating:
    found = Repeating({(job, 0): wanted for job in {one.job for one in records}}, alike)
    for one in records:
        found.hear(one)
    return found


def every(job: int, *starts: int) -> list[Record]:
    return [record(job, number, start) for number, start in enumerate(starts)]


def test_three_alike_are_enough_and_the_rest_follows() -> None:
    found = heard([record(0, 0, 0, lasts=95), *every(0, 0, 100, 200, 300)[1:]])
    assert found.common_period == Period(100e-9, 3, (4,))
    rest = found.rest()
    assert [one.iteration for one in rest] == list(range(4, 30))
    assert rest[0] == record(0, 4, 400) and rest[-1] == record(0, 29, 2900)


@pytest.mark.parametrize(
    ("records", "why"),
    [
        (every(0, 0, 100), "two are too few"),
        ([*every(0, 0, 100, 200), record(0, 3, 300, lasts=91)], "the last takes another time"),
        ([*every(0, 0, 100, 200), record(0, 3, 300, cwnd=11)], "the last leaves another window"),
        (every(0, 0, 100, 201), "they begin further and further apart"),
        ([*every(0, 0, 100, 200), *every(1, 0, 110, 220)], "each job has a period of its own"),
        ([*every(0, 0, 100, 200), *every(1, 0, 100)], "one job has not gone through as many"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_otherwise_it_goes_on(records: Sequence[Record], why: str) -> None:
    assert heard(records).common_period is None, why


def test_jobs_that_take_turns_repeat_together() -> None:
    found = heard([*every(0, 0, 100, 200), *every(1, 40, 140, 240, 340)], wanted=5)
    assert found.common_period == Period(100e-9, 3, (3, 4))
    assert sorted((one.job, one.iteration, one.start) for one in found.rest()) == [
        (0, 3, 300),
        (0, 4, 400),
        (1, 4, 440),
    ]


@pytest.mark.parametrize(
    ("flags", "alike"),
    [
        ({}, 4),
        ({"noise": "1%"}, 0),
        ({"delay": "1ms"}, 4),
        ({"delay": "1ms", "jitter": "10us"}, 0),
        ({"loss": "0.1%"}, 0),
        ({"job": ["synthetic,compute=10ms,bytes=1MB,leave=2s", "synthetic,compute=10ms,bytes=1MB"]}, 0),
        ({"event": [{"at": "1s", "link": "s1-s2", "rate": "50%"}]}, 0),
        ({"system": ["ltp"]}, 0),
        ({"system": ["reno:close=0.8"]}, 0),
    ],
    ids=str,
)
def test_only_what_nothing_can_disturb_may_end_early(flags: dict[str, object], alike: int) -> None:
    found = plan.plans(plan.resolve(read(None, {"stop_when_periodic": 4, **flags})))
    assert {one.stop_when_periodic for one in found} == {alike}


def test_one_iteration_is_no_period() -> None:
    with pytest.raises(RequestError, match="2 at the least"):
        read(None, {"stop_when_periodic": 1})

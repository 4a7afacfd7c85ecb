"""Iterations of a record that does not mark them, against drawn jobs whose iterations are known."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from testbed.traces.importing import Request
from testbed.traces.process_groups import Group
from testbed.traces.repeating import Call, steps_of
from testbed.traces.trace import Kind, TraceError

KINDS: tuple[Kind, ...] = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast")
GROUPS = (Group("dp", 8), Group("ep", 4))
HERE = Path("drawn")


class Drawn:
    """A job: what it does before training, its iteration with a pause before each exchange, and how often that takes place."""

    def __init__(self, draw: random.Random) -> None:
        self.steps = draw.randint(5, 9)
        own = [(draw.choice(KINDS), 5000 * draw.randint(1, 4), draw.choice(GROUPS)) for _ in range(draw.randint(2, 25))]
        own.append(("all_reduce", 7_777_777, GROUPS[0]))  # so that no part of it is like the whole
        self.pauses = [draw.uniform(0.001, 0.01) for _ in own]
        self.longest = draw.randrange(len(own))
        self.pauses[self.longest] = 0.05
        self.own = own
        self.before = draw.randint(1, 3)
        self.loss = draw.choice((0, 2, 3))  # after how many iterations a loss is summed

    def calls(self, timed: bool) -> list[Call]:
        calls: list[Call] = []
        now = 1.0

        def add(kind: Kind, size: int, group: Group, pause: float) -> None:
            nonlocal now
            start, now = now + pause, now + pause + 0.002
            calls.append(
                Call(kind, size, group, start_s=start if timed else None, end_s=now if timed else None, waits=True)
            )

        for number in range(self.before):
            add("broadcast", 99_999 + number, GROUPS[0], 0.003)
        for step in range(self.steps):
            for (kind, size, group), pause in zip(self.own, self.pauses, strict=True):
                add(kind, size, group, pause)
            if self.loss and step % self.loss == 0:
                add("all_reduce", 4, GROUPS[0], 0.0)
        add("all_reduce", 12_345, GROUPS[0], 0.5)
        return calls


@pytest.mark.parametrize("seed", range(60))
def test_the_iterations_of_a_drawn_job(seed: int) -> None:
    job = Drawn(random.Random(seed))
    steps, _ = steps_of(job.calls(timed=True), Request(), HERE)
    assert job.steps - 1 <= len(steps) <= job.steps
    turned = [*job.own[job.longest :], *job.own[: job.longest]]
    for step in steps:
        exchanges = [(one.kind, one.bytes, Group(one.group).name) for one in step.exchanges if one.bytes > 4]
        assert exchanges == [(kind, size, group.name) for kind, size, group in turned]
    lengths = sorted(step.duration_s for step in steps)
    assert lengths[len(lengths) // 2] == pytest.approx(sum(job.pauses) + 0.002 * len(job.own), abs=0.0021)


@pytest.mark.parametrize("seed", range(20))
def test_the_same_without_times(seed: int) -> None:
    job = Drawn(random.Random(seed))
    steps, _ = steps_of(job.calls(timed=False), Request(), HERE)
    assert len(steps) == job.steps
    assert {sum(one.bytes for one in step.exchanges if one.bytes > 4) for step in steps} == {
        sum(size for _, size, _ in job.own)
    }


@pytest.mark.parametrize("seed", range(5))
def test_what_does_not_recur_is_refused(seed: int) -> None:
    draw = random.Random(seed)
    calls = [Call("all_reduce", draw.randint(5000, 10**9), GROUPS[0]) for _ in range(200)]
    with pytest.raises(TraceError, match="--steps"):
        steps_of(calls, Request(), HERE)

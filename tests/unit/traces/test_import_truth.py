"""Profiles of simulated training are imported as what was simulated."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from testbed.traces.importing import Request, import_trace
from testbed.traces.trace import Operation, Trace, save
from tests.support.profiles import imported
from tests.support.properties import examples
from tests.support.training import ELEMENT, Job, Lines, Style, Training, trainings

MS = 1e6  # nanoseconds


@st.composite
def jobs(draw: st.DrawFn) -> Job:
    style: Style = draw(st.sampled_from(get_args(Style)))
    count = draw(st.integers(1, 6))
    waits = draw(st.booleans())
    return Job(
        style=style,
        layers=tuple(draw(st.lists(st.sampled_from((0.5, 1.0, 2.5, 4.0)), min_size=count, max_size=count))),
        sizes=tuple(draw(st.lists(st.integers(100, 10**8), min_size=count, max_size=count))),
        exchange=draw(st.sampled_from((0.3, 2.0, 9.0))),
        workers=draw(st.sampled_from((2, 4, 8))),
        micro_steps=draw(st.integers(1, 3)) if style == "ddp" else 1,
        iterations=(iterations := draw(st.sampled_from((3, 5)))),
        waits=waits,
        pause=draw(st.sampled_from((0.0, 3.0))) if waits else 0.0,
        told=draw(st.booleans()),
        behind=draw(st.sampled_from((0.0, 0.0, 30.0))),
        skew=draw(st.sampled_from((0.0, 0.0, 4.0, -4.0, -0.1))),
        odd=draw(st.sampled_from((0.0, 0.0, 2.0)))
        if iterations == 5
        else 0.0,  # the first one differs where the GPU's clock is ahead
    )


def moments(operations: tuple[Operation, ...]) -> tuple[dict[str, float], dict[str, float], float]:
    """In milliseconds of computing: when each collective is ready, when one first waits for it, and all of it."""
    ready: dict[str, float] = {}
    needed: dict[str, float] = {}
    ends: dict[str, float] = {}
    now = 0.0
    for op in operations:
        if op.computes:
            needed = {**dict.fromkeys((name for name in op.after), now), **needed}
            now += (op.duration or 0) / MS
            ends[op.id] = now
        else:
            ready[op.id] = max((ends[name] for name in op.after), default=0.0)
    return ready, needed, now


def told(op: Operation, trace: Trace) -> tuple[str, str, int]:
    return op.kind, op.group or next(iter(trace.groups)), int(op.peer or 0)


def check(training: Training, operations: tuple[Operation, ...], trace: Trace) -> None:
    """That these operations are what the training did."""
    ready, needed, total = moments(operations)
    near = 0.1 + 0.02 * training.computing
    assert total == pytest.approx(training.computing, abs=near)
    streams = {(one.kind, one.group, one.peer) for one in training.truth}  # each carries out one after the other
    assert {told(op, trace) for op in operations if not op.computes} == streams
    for stream in streams:
        found = [op for op in operations if not op.computes and told(op, trace) == stream]
        truth = [one for one in training.truth if (one.kind, one.group, one.peer) == stream]
        assert [op.size for op in found] == [ELEMENT * one.elements for one in truth]
        assert [ready[op.id] for op in found] == pytest.approx([one.ready for one in truth], abs=near)
        if stream[0] != "send":  # computing does not wait for it
            assert [needed[op.id] for op in found] == pytest.approx([one.needed for one in truth], abs=near)


@examples(500)
@given(jobs())
def test_the_truth_is_found(job: Job) -> None:
    training = Training(job)
    with tempfile.TemporaryDirectory() as folder:
        trace = imported(training.write(Path(folder)))
    assert float(trace.noise.rstrip("%")) < 2
    assert {len(one) for lists in trace.groups.values() for one in lists} == {job.workers}
    check(training, trace.operations, trace)


@st.composite
def ranks(draw: st.DrawFn) -> tuple[list[Job], Lines, list[float]]:
    """Jobs of several ranks, which compute at one of two paces or are stages of a pipeline, each with a clock of its own."""
    job = draw(jobs())
    groups: Lines
    if draw(st.booleans()):
        stages, width = draw(st.sampled_from(((2, 1), (2, 2), (3, 1), (3, 2))))
        along = tuple(tuple(range(first, stages * width, width)) for first in range(width))
        across = tuple(tuple(range(stage * width, (stage + 1) * width)) for stage in range(stages))
        groups = {"pp": along, **({"dp": across} if width > 1 else {})}
        job = replace(job, style="pipeline", micro_steps=1)
    elif job.style == "tensor":
        groups = {"tp": ((0, 1), (2, 3)), "dp": ((0, 2), (1, 3))}
    else:
        everyone = (tuple(range(draw(st.sampled_from((2, 4))))),)
        groups = {"ep": everyone, "dp": everyone} if job.style == "experts" else {"dp": everyone}
    count = 1 + max(rank for lines in groups.values() for line in lines for rank in line)
    paces = draw(st.lists(st.sampled_from((1.0, 1.0, 1.5)), min_size=count, max_size=count))
    clocks = draw(st.lists(st.sampled_from((0.0, 0.7, -3.0, 250.0, 1e5)), min_size=count, max_size=count))
    slower = [replace(job, odd=0.0, layers=tuple(pace * one for one in job.layers)) for pace in paces]
    return slower, groups, clocks


@pytest.mark.slow
@examples(500)
@given(ranks())
def test_the_truth_of_several_ranks_is_found(case: tuple[list[Job], Lines, list[float]]) -> None:
    found = trainings(*case)
    with tempfile.TemporaryDirectory() as folder:
        paths = [one.write(Path(folder)) for one in found]
        trace = import_trace(paths, Request(), name="mine", model="a model")
        save(trace, Path(folder) / "trace.json")  # matched, and without a deadlock
    alike: dict[tuple[object, ...], set[int]] = {}
    for one in found:
        alike.setdefault((one.job.layers, *((each.kind, each.peer) for each in one.truth)), set()).add(one.rank)
    assert {frozenset(role.ranks) for role in trace.all_roles} == set(map(frozenset, alike.values()))
    assert {name: set(lines) for name, lines in trace.groups.items()} == {
        name: set(lines) for name, lines in case[1].items()
    }
    for role in trace.all_roles:
        for rank in role.ranks:
            check(found[rank], role.operations, trace)

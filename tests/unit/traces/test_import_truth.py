"""Profiles of simulated training are imported as what was simulated."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from testbed.traces.trace import Operation, Trace
from tests.support.profiles import imported
from tests.support.properties import examples
from tests.support.training import ELEMENT, Job, Style, Training

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


def moments(trace: Trace) -> tuple[dict[str, float], dict[str, float], float]:
    """In milliseconds of computing: when each collective is ready, when one first waits for it, and all of it."""
    ready: dict[str, float] = {}
    needed: dict[str, float] = {}
    ends: dict[str, float] = {}
    now = 0.0
    for op in trace.operations:
        if op.computes:
            needed = {**dict.fromkeys((name for name in op.after), now), **needed}
            now += (op.duration or 0) / MS
            ends[op.id] = now
        else:
            ready[op.id] = max((ends[name] for name in op.after), default=0.0)
    return ready, needed, now


def told(op: Operation, trace: Trace) -> tuple[str, str]:
    return op.kind, op.group or next(iter(trace.groups))


@examples(500)
@given(jobs())
def test_the_truth_is_found(job: Job) -> None:
    training = Training(job)
    with tempfile.TemporaryDirectory() as folder:
        trace = imported(training.write(Path(folder)))
    ready, needed, total = moments(trace)
    near = 0.1 + 0.02 * training.computing
    assert total == pytest.approx(training.computing, abs=near)
    assert float(trace.noise.rstrip("%")) < 2
    assert {len(one) for lists in trace.groups.values() for one in lists} == {job.workers}
    streams = {(one.kind, one.group) for one in training.truth}  # each carries out one collective after the other
    assert {told(op, trace) for op in trace.operations if not op.computes} == streams
    for stream in streams:
        found = [op for op in trace.operations if not op.computes and told(op, trace) == stream]
        truth = [one for one in training.truth if (one.kind, one.group) == stream]
        assert [op.size for op in found] == [ELEMENT * one.elements for one in truth]
        assert [ready[op.id] for op in found] == pytest.approx([one.ready for one in truth], abs=near)
        assert [needed[op.id] for op in found] == pytest.approx([one.needed for one in truth], abs=near)

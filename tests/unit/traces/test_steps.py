"""Many measured steps become one iteration."""

from __future__ import annotations

import pytest

from testbed.traces.median_iteration import trace_of
from testbed.traces.steps import Exchange, Step
from testbed.traces.trace import Source


def test_the_median_step_adds_up() -> None:
    """Medians of spans would give 3 + 3 + 1 = 7 ms here; the median step computes 9 ms."""
    steps = []
    for one, two in ((1, 7), (3, 3), (7, 1)):
        exchange = Exchange("all_reduce", 5, one / 1e3, one / 1e3)
        steps.append(
            Step((one + two + 1) / 1e3, (exchange, Exchange("all_reduce", 6, (one + two) / 1e3, (one + two) / 1e3)))
        )
    trace = trace_of([steps], name="x", model="x", source=Source(kind="synthetic"), native_rate=None)
    assert trace.compute_s == pytest.approx(0.009)
    assert [op.duration for op in trace.operations if op.duration] == [3_000_000, 5_000_000, 1_000_000]


def test_an_exchange_blocks_if_it_does_in_most_steps() -> None:
    def step(blocking: bool) -> Step:
        return Step(0.1, (Exchange("all_gather", 5, 0.01, 0.02, blocking), Exchange("all_reduce", 6, 0.05, 0.06)))

    steps = [step(True), step(False), step(True)]
    trace = trace_of([steps], name="x", model="x", source=Source(kind="synthetic"), native_rate=None)
    assert trace.operations[2].after == ("all_gather1",)
    assert trace.operations[2].duration == 30_000_000
    assert trace.assumptions == ()


def test_a_pattern_of_steps_that_recurs_is_one_iteration() -> None:
    """Two steps gather 5 bytes, the third also reduces 6: as fully sharded models accumulate gradients."""

    def step(reduces: bool) -> Step:
        gather = Exchange("all_gather", 5, 0.01, 0.02, awaited_s=0.01)
        reduce = Exchange("reduce_scatter", 6, 0.05, 0.06)
        return Step(0.1, (gather, reduce) if reduces else (gather,))

    steps = [step(number % 3 == 1) for number in range(8)]
    trace = trace_of([steps], name="x", model="x", source=Source(kind="synthetic"), native_rate=None)
    assert [(op.kind, op.bytes) for op in trace.operations if op.bytes] == [("all_gather", 5)] * 3 + [
        ("reduce_scatter", 6)
    ]
    assert trace.compute_s == pytest.approx(0.3 - 3 * 0.01 - 0.01)
    assert "medians of 2 steps" in trace.source.measured_by

"""Exactly fair sharing, by cases that can be counted by hand."""

from __future__ import annotations

import numpy as np
import pytest

from testbed.models.fair_share import iteration_times


def test_jobs_that_collide_take_turns_never() -> None:
    first, second = iteration_times([1, 1], [1, 1], [0, 0], [5, 5])
    assert first == pytest.approx(np.full(5, 3.0)) and second == pytest.approx(first)


def test_jobs_that_do_not_meet_take_what_they_take_alone() -> None:
    first, second = iteration_times([1, 1], [1, 1], [0, 1], [4, 4])
    assert first == pytest.approx(np.full(4, 2.0)) and second == pytest.approx(first)


def test_a_short_job_beside_long_ones_waits_for_them() -> None:
    """Twenty long jobs that never stop sending leave it a twenty-first."""
    short, *_ = iteration_times([1e-3] + [0.0] * 20, [1e-3] + [1e6] * 20, [0.0] * 21, [3] + [0] * 20)
    assert short == pytest.approx(np.full(3, 22e-3))

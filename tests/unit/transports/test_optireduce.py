"""OptiReduce's transport: what it measures, when a stage ends, and that what is missing is said."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from testbed import transports
from testbed.core.errors import RequestError
from testbed.transports import mlt, optireduce
from testbed.transports.optireduce import Bounds

MS = 1_000_000


def measured(*took_ms: int, rounds: int = 20, wait: float = 0.1) -> Bounds:
    bounds = Bounds(rounds, 95, wait)
    for number, took in enumerate(took_ms):
        assert bounds.whole
        bounds.heard(number, took * MS, took * MS // 2, 0)
    return bounds


def test_the_first_rounds_arrive_whole_and_their_95th_percentile_bounds_the_others() -> None:
    bounds = measured(*range(1, 21))
    assert not bounds.whole and bounds.bound_ns == 19 * MS
    assert bounds.lt_ns == pytest.approx(1.1 * 5.25 * MS)  # of its own clock half as long, on average
    assert (bounds.lt_ns or 0) + (bounds.after_ns or 0) == 19 * MS


def test_a_stage_that_usually_takes_longer_than_its_bound_ends_there() -> None:
    bounds = Bounds(2, 50, 0.1)
    for took in (5 * MS, 10 * MS):
        bounds.heard(0, took, took, 0)
    assert bounds.bound_ns == bounds.lt_ns == 5 * MS and bounds.after_ns == 0


def test_it_waits_longer_where_much_is_lost_and_shorter_again() -> None:
    bounds = measured(10, 10, rounds=2)
    for expected in (0.2, 0.4, 0.5, 0.5):
        bounds.heard(3, 10 * MS, 10 * MS, lost=0.05)
        assert bounds.wait == pytest.approx(expected)
    for _ in range(100):
        bounds.heard(4, 10 * MS, 10 * MS, lost=0)
    assert bounds.wait == pytest.approx(0.1)
    bounds.heard(5, 10 * MS, 10 * MS, lost=0.0005)  # between the two: as it was
    assert bounds.wait == pytest.approx(0.1)


def test_the_average_follows_the_network() -> None:
    bounds = measured(*[10] * 4, rounds=4, wait=0)
    for _ in range(4):
        bounds.heard(9, 8 * MS, 8 * MS, 0)
    assert bounds.lt_ns == 8 * MS


def test_where_most_is_missing_the_bound_doubles_and_falls_again() -> None:
    bounds = measured(*[10] * 4, rounds=4)
    for lost, expected in ((1, 20), (0.6, 40), (0.5, 40), (0.01, 40), (0, 20), (0, 10), (0, 10)):
        bounds.heard(9, 10 * MS, 5 * MS, lost)
        assert bounds.bound_ns == expected * MS


def test_what_never_came_took_no_time() -> None:
    bounds = measured(*[10] * 4, rounds=4, wait=0)
    bounds.heard(9, 0, 0, lost=1)
    assert bounds.lt_ns == 5 * MS


@given(st.lists(st.tuples(st.integers(0, 10**10), st.integers(0, 10**10), st.floats(0, 1)), max_size=40))
def test_times_are_never_negative(ended: list[tuple[int, int, float]]) -> None:
    bounds = Bounds(5, 95, 0.1)
    for took, own, lost in ended:
        bounds.heard(0, took, own, lost)
        assert 0.1 <= bounds.wait <= optireduce.MOST_WAIT
        assert bounds.whole == (bounds.bound_ns is None) == (bounds.after_ns is None)
        assert (bounds.lt_ns or 0) >= 0 and (bounds.after_ns or 0) >= 0


def test_what_may_be_written_behind_it() -> None:
    found = transports.parse("optireduce:rounds=5,percentile=90,wait=0.3,broadcast=whole")
    assert (found.options.rounds, found.options.percentile, found.options.wait) == (5, 90, 0.3)
    assert found.lossy and found.datagrams
    assert found.close("gradient").fraction == 0.9 and found.close("parameter").fraction == 1
    assert transports.parse("optireduce").close("parameter") == found.close("gradient")
    for wrong in ("rounds=0", "percentile=101", "wait=0.6", "broadcast=tcp", "incast=2"):
        with pytest.raises(RequestError):
            transports.parse(f"optireduce:{wrong}")


def test_its_rate_is_mlts_and_order_says_nothing() -> None:
    core = optireduce.Options().core
    assert core.reorder == mlt.ALL_FIRST and core.congestion is not None and core.congestion.control == mlt.DELAY
    assert not core.marked and core.tagger is None

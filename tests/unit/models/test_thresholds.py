"""Thresholds of bands as MLT's appendix has them: against every choice there is on a grid, and by what must hold of any."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from testbed.models import thresholds
from testbed.models.thresholds import Threshold


def test_a_queue_of_one_place_loses_what_finds_it_busy() -> None:
    """M/M/1/1: load ÷ (1 + load); at a load of 1 all places are as likely; without load nothing is lost."""
    assert thresholds.lost(0.5, 1) == pytest.approx(1 / 3) and thresholds.lost(1, 4) == pytest.approx(1 / 5)
    assert thresholds.lost(1 + 1e-7, 4) == pytest.approx(1 / 5, rel=1e-5) and thresholds.lost(1e-9, 3) < 1e-26


@pytest.mark.parametrize("load", [0.8, 1.0])
def test_no_choice_on_a_grid_costs_less(load: float) -> None:
    quarter = [number / 4 for number in range(4, 49)]
    best = min(
        thresholds.rounds([Threshold(one, held), Threshold(other, 12 - held)], load, 0.5)
        for held in quarter if held <= 11
        for one, other in itertools.product(quarter, quarter) if one <= held and other <= 12 - held
    )  # fmt: skip
    found = thresholds.rounds(thresholds.solve(2, 12, load), load, 0.5)
    assert found <= best * (1 + 1e-6) and found > 0.99 * best


@settings(max_examples=30, deadline=None)
@given(some.integers(1, 7), some.integers(14, 400), some.floats(0.7, 1.3), some.floats(0.2, 0.8))
def test_a_port_is_shared_and_front_layers_are_dropped_first(
    bands: int, packets: int, load: float, small: float
) -> None:
    found = thresholds.solve(bands, packets, load, small)
    assert sum(one.everything for one in found) == pytest.approx(packets)
    assert all(0.99 < one.droppable <= one.everything + 1e-6 for one in found)
    for higher, lower in itertools.pairwise(found):
        assert higher.droppable <= lower.droppable + 0.01 and higher.everything <= lower.everything + 0.01


def test_a_port_with_room_for_hardly_a_packet_is_refused() -> None:
    with pytest.raises(ValueError, match="7 packets are too few for 4 bands"):
        thresholds.solve(4, 7)

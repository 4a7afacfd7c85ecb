"""Packets that are dropped on purpose: how many, and which."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from testbed.models import gradient_masks
from testbed.replay.training import ELEMENT
from testbed.replay.training.layers import Array

NUMBERS = gradient_masks.PACKET_BYTES // ELEMENT


def gradient(packets: int) -> Array:
    """Whose packets matter the more the later they come."""
    return np.repeat(np.arange(1, packets + 1, dtype=np.float32), NUMBERS)


def arrived(mean: gradient_masks.Dropped, values: Array) -> np.ndarray:
    """By packet, of one worker alone."""
    return np.asarray(mean([values], [()]).reshape(-1, NUMBERS)[:, 0] != 0)


@given(st.integers(2, 60), st.floats(0, 1), st.integers(0, 9))
def test_the_share_is_missing_in_the_mean_and_nothing_but_it(packets: int, share: float, seed: int) -> None:
    mean = gradient_masks.Dropped(share, gradient_masks.anywhere, seed)
    gone = [packets - int(arrived(mean, gradient(packets)).sum()) for _ in range(20)]
    assert all(int(share * packets) <= one <= int(share * packets) + 1 for one in gone)
    assert np.mean(gone) == pytest.approx(share * packets, abs=0.5)


@pytest.mark.parametrize(
    ("candidates", "may"),
    [
        (gradient_masks.unimportant, range(6)),
        (gradient_masks.third(0), range(4)),
        (gradient_masks.third(2), range(8, 12)),
        (gradient_masks.within(2 * NUMBERS, 5 * NUMBERS), range(2, 5)),
    ],
)
def test_only_what_may_go_is_missing(candidates: gradient_masks.Candidates, may: range) -> None:
    mean = gradient_masks.Dropped(1.0, candidates, 1)
    assert list(np.flatnonzero(~arrived(mean, gradient(12)))) == list(may)


def test_a_share_of_all_ends_with_those_that_may_go() -> None:
    few = gradient_masks.Dropped(0.25, gradient_masks.unimportant, 1, of_all=True)
    assert (~arrived(few, gradient(12))).sum() == 3
    most = gradient_masks.Dropped(0.9, gradient_masks.unimportant, 1, of_all=True)
    assert (~arrived(most, gradient(12))).sum() == 6


def test_the_same_seed_drops_the_same_and_rounds_differ() -> None:
    one, again = (gradient_masks.Dropped(0.3, gradient_masks.anywhere, 4) for _ in range(2))
    rounds = [list(arrived(one, gradient(40))) for _ in range(3)]
    assert rounds == [list(arrived(again, gradient(40))) for _ in range(3)]
    assert rounds[0] != rounds[1]

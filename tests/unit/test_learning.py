"""A training with holes in its gradients: what is missing counts as each way to fill it has it, and nothing else changes."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from theory import learning
from theory.learning import Examples, Task

ROUNDS, WORKERS = 40, 4


def examples(count: int, seed: int) -> Examples:
    """Four classes, each around a point of its own."""
    draw = np.random.default_rng(seed)
    classes = draw.integers(4, size=count)
    inputs = np.eye(4, 8, dtype=np.float32)[classes] + draw.normal(0, 0.2, (count, 8)).astype(np.float32)
    return Examples(inputs.astype(np.float32), classes)


TASK = Task(examples(400, 1), examples(200, 2), hidden=16, batch=8)
NOTHING = [[()] * WORKERS] * ROUNDS
EVERYTHING = [[((0, TASK.bytes),)] * WORKERS] * ROUNDS


def test_it_learns_and_repeats_exactly() -> None:
    curve = learning.train(TASK, NOTHING, seed=3)
    assert len(curve) == ROUNDS // TASK.every and curve[-1] > 0.95
    assert (curve == learning.train(TASK, NOTHING, seed=3)).all()
    assert (curve[0] != learning.train(TASK, NOTHING, seed=4)[0]) or curve[0] == 1


@pytest.mark.parametrize("fill", ["zero", "contributors", "feedback"])
def test_without_gradients_nothing_is_learnt(fill: learning.Fill) -> None:
    curve = learning.train(TASK, EVERYTHING, fill=fill)
    assert (curve == curve[0]).all()


def test_one_byte_takes_its_whole_number() -> None:
    assert list(np.flatnonzero(~learning._arrived(5, ((7, 2),)))) == [1, 2]


@pytest.mark.parametrize(
    ("fill", "expected"),
    [("zero", [2.0, 3.0, 1.0]), ("contributors", [4.0, 3.0, 1.0]), ("feedback", [2.0, 3.0, 1.0])],
)
def test_each_way_to_fill_a_hole(fill: learning.Fill, expected: list[float]) -> None:
    """The second of two workers does not deliver its first number."""
    gradients = [np.array([4, 4, 0], np.float32), np.array([8, 2, 2], np.float32)]
    owed = [np.zeros(3, np.float32) for _ in gradients]
    assert list(learning.gathered(gradients, [(), ((0, 4),)], owed, fill)) == expected
    assert list(owed[1]) == ([8, 0, 0] if fill == "feedback" else [0, 0, 0])
    then = learning.gathered(gradients, [(), ()], owed, fill)
    assert list(then) == ([10.0, 3.0, 1.0] if fill == "feedback" else [6.0, 3.0, 1.0])  # what was lost comes later


@given(st.lists(st.tuples(st.integers(0, 60), st.integers(1, 20)), max_size=5), st.integers(0, 2**32))
def test_no_fill_invents_anything(holes: list[tuple[int, int]], seed: int) -> None:
    """Under feedback the sum of what arrived and what is owed is what was computed; the mean of contributors is between theirs."""
    draw = np.random.default_rng(seed)
    gradients = [draw.normal(size=20).astype(np.float32) for _ in range(3)]
    owed = [np.zeros(20, np.float32) for _ in gradients]
    lost = [tuple(holes), (), ()]
    mean = learning.gathered(gradients, lost, owed, "feedback")
    assert np.allclose(3 * mean + sum(owed), sum(gradients), atol=1e-5)
    among = learning.gathered(gradients, lost, owed, "contributors")
    assert (among <= np.max(gradients, axis=0) + 1e-6).all() and (among >= np.min(gradients, axis=0) - 1e-6).all()

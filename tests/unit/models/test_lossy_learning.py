"""Dispersal is a rotation that spreads what is lost; compression sends what it says, and the rest later."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import linalg

from testbed.models import compression, learning
from testbed.models.compression import BLOCK, KEPT, SHARE, Compressed, largest, rounded
from testbed.models.dispersal import Dispersed
from testbed.replay.training import ELEMENT
from testbed.replay.training.layers import Array
from testbed.transports import hadamard
from testbed.transports.hadamard import collected, dispersed
from tests.unit.replay.test_learning import NOTHING, TASK

SIZES = st.integers(1, 3000)
SEEDS = st.integers(0, 2**32)


def normal(size: int, seed: int) -> Array:
    return np.random.default_rng(seed).normal(size=size).astype(np.float32)


@given(size=SIZES, seed=SEEDS)
def test_without_loss_nothing_changes(size: int, seed: int) -> None:
    values = normal(size, seed)
    sent = dispersed(values, seed)
    assert collected(sent, seed) == pytest.approx(values, abs=1e-4)
    assert np.linalg.norm(sent) == pytest.approx(np.linalg.norm(values), rel=1e-4)  # a rotation
    assert (sent == dispersed(values, seed)).all()


@pytest.mark.parametrize("size", [1, 4, 128])
def test_the_transform_is_hadamards(size: int) -> None:
    rows = hadamard._transformed(np.eye(size, dtype=np.float32)) * np.float32(size**0.5)
    assert rows == pytest.approx(linalg.hadamard(size))


@given(power=st.integers(4, 12), place=st.integers(0, 10**6), seed=SEEDS)
def test_one_lost_number_costs_every_number_the_same(power: int, place: int, seed: int) -> None:
    values = normal(2**power, seed)
    sent = dispersed(values, seed)
    lost = abs(float(sent[place % len(sent)]))
    sent[place % len(sent)] = 0
    error = np.abs(collected(sent, seed) - values)
    assert error == pytest.approx(np.full(len(values), lost / 2 ** (power / 2)), abs=1e-5)


@pytest.mark.parametrize("size", [4096, 5000, 8000])
def test_a_lost_packets_error_spreads_evenly(size: int) -> None:
    """A packet's 350 numbers: without dispersal their whole error is at 350 places, with it no stretch of as many has much more than its share."""
    values, errors = normal(size, 1) * np.linspace(0.1, 3, size, dtype=np.float32), np.zeros(size)
    for seed in range(40):
        sent = dispersed(values, seed)
        sent[350:700] = 0
        errors += (collected(sent, seed) - values) ** 2
    share = np.array([errors[at : at + 350].sum() for at in range(0, size - 350, 350)]) / errors.sum()
    assert share.max() < 3 * 350 / size
    assert 0.5 < errors.sum() / 40 / (350 / size * float(values @ values)) < 2  # what a random subset would hold


def test_what_disperses_learns_where_the_same_place_is_always_lost() -> None:
    """The tail never arrives, a third of every gradient: without dispersal those numbers stay what they were."""
    tail = ((2 * TASK.bytes // 3, TASK.bytes),)
    missing = [[tail] * 4] * 40
    plain = learning.train(TASK, missing, seed=3)
    spread = learning.train(TASK, missing, seed=3, mean=Dispersed())
    whole = learning.train(TASK, NOTHING, seed=3)
    assert spread[-1] >= whole[-1] - 0.02 and spread.mean() > plain.mean()


@pytest.mark.parametrize("fill", ["zero", "mean_of_received", "feedback"])
def test_dispersed_and_whole_is_the_mean(fill: learning.Fill) -> None:
    mean = Dispersed(fill)
    for number in range(3):
        gradients = [normal(1000, 10 * number + worker) for worker in range(4)]
        assert mean(gradients, [()] * 4) == pytest.approx(np.mean(gradients, axis=0), abs=1e-4)


def test_dispersed_feedback_sends_later_what_was_lost() -> None:
    mean = Dispersed("feedback")
    gradients = [normal(1000, worker) for worker in range(2)]
    first = mean(gradients, [((0, 2000),), ()])
    second = mean([np.zeros_like(one) for one in gradients], [(), ()])
    assert first + second == pytest.approx(np.mean(gradients, axis=0), abs=1e-4)
    assert np.abs(second).max() > 0.1


@given(size=SIZES, seed=SEEDS)
def test_top_k_keeps_the_largest(size: int, seed: int) -> None:
    values = normal(size, seed)
    kept = largest(values)
    chosen = kept != 0
    assert chosen.sum() == max(1, int(KEPT * size))
    assert (kept[chosen] == values[chosen]).all()
    assert np.abs(values[~chosen]).max(initial=0) <= np.abs(values[chosen]).min()


@given(size=SIZES, seed=SEEDS)
def test_four_bits_are_fifteen_levels_of_a_blocks_largest(size: int, seed: int) -> None:
    values = normal(size, seed)
    near = rounded(values)
    for at in range(0, size, BLOCK):
        mine, was = near[at : at + BLOCK], values[at : at + BLOCK]
        most = np.abs(was).max()
        assert len(np.unique(np.rint(mine / most * 7))) <= 15
        assert np.abs(mine - was).max() <= most / 14 * 1.001


def test_both_send_as_many_bytes() -> None:
    count = 100 * BLOCK
    four_bits = count / 2 + count / BLOCK * ELEMENT
    assert int(KEPT * count) * 8 == pytest.approx(four_bits, rel=1e-3) == SHARE * count * ELEMENT


@pytest.mark.parametrize("how", [compression.largest, compression.rounded])
def test_what_compression_takes_comes_later(how: compression.Compression) -> None:
    mean = Compressed(how)
    gradients = [normal(200, worker) for worker in range(3)]
    total = mean(gradients, [()] * 3)
    for _ in range(60):
        total = total + mean([np.zeros_like(one) for one in gradients], [()] * 3)
    assert total == pytest.approx(np.mean(gradients, axis=0), abs=1e-3)
    whole = learning.train(TASK, NOTHING, seed=3)
    assert learning.train(TASK, NOTHING, seed=3, mean=Compressed(how))[-1] >= whole[-1] - 0.02

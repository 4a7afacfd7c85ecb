"""Gradients around a ring that loses packets: what is missing where, and how replicas drift apart."""

from __future__ import annotations

import numpy as np
import pytest

from testbed.models import learning, ring
from testbed.replay.training.layers import Array
from testbed.traces import collectives

N, COUNT = 4, 4000


@pytest.fixture
def gradients() -> list[Array]:
    draw = np.random.default_rng(7)
    return [draw.normal(size=COUNT).astype(np.float32) for _ in range(N)]


def whole(_step: int, _rank: int, count: int) -> ring.Here:
    return np.ones(count, bool)


def test_with_nothing_lost_every_rank_has_the_mean(gradients: list[Array]) -> None:
    for got in ring.reduced(gradients, whole):
        assert got == pytest.approx(np.mean(gradients, axis=0), abs=1e-6)


def test_the_steps_are_the_collectives() -> None:
    """Which rank sends which chunk in which step, as the bytes on the wire have it."""
    size = 10 * N + 3
    sent = collectives.find("ring")._sent_by
    parts = collectives.parts(N, size)
    for rank in range(N):
        chunks = [(rank - step) % N if step < N - 1 else (rank + 1 - (step - N + 1)) % N for step in range(2 * (N - 1))]
        assert sent(rank, N, size) == [parts[chunk] for chunk in chunks]


@pytest.mark.parametrize("step", range(N - 1))
def test_a_lost_partial_sum_takes_all_upstream_ranks(step: int, gradients: list[Array]) -> None:
    """Of the chunk that rank 2 receives in this step, ``step + 1`` ranks' parts are gone, everywhere alike."""

    def arrives(now: int, rank: int, count: int) -> ring.Here:
        return np.full(count, not (now == step and rank == 2))

    results = ring.reduced(gradients, arrives)
    upstream = [(2 - back) % N for back in range(1, step + 2)]
    chunk = (2 - 1 - step) % N
    where = slice(chunk * COUNT // N, (chunk + 1) * COUNT // N)
    left = [gradient[where] for rank, gradient in enumerate(gradients) if rank not in upstream]
    expected = np.mean(gradients, axis=0)
    expected[where] = np.sum(left, axis=0) / N
    for got in results:
        assert got == pytest.approx(expected, abs=1e-6)


def test_a_sum_lost_on_its_way_back_leaves_who_waits_and_all_behind_without(gradients: list[Array]) -> None:
    def arrives(now: int, rank: int, count: int) -> ring.Here:
        return np.full(count, not (now == N - 1 and rank == 2))

    results = ring.reduced(gradients, arrives)
    mean, chunk = np.mean(gradients, axis=0), slice(2 * COUNT // N, 3 * COUNT // N)
    for rank, got in enumerate(results):
        without = rank in (2, 3, 0)  # rank 1 has summed it up
        assert got[chunk] == pytest.approx(np.zeros(COUNT // N) if without else mean[chunk], abs=1e-6)
        assert np.delete(got, np.r_[chunk]) == pytest.approx(np.delete(mean, np.r_[chunk]), abs=1e-6)


def test_replicas_drift_apart_until_one_is_copied() -> None:
    """And not where parameters come whole; with nothing lost it is the training by a parameter server."""
    task, rounds = learning.task(), 20
    never, often = (ring.train(task, rounds, N, ring.lost(0.05, 1, N), resync=k, seed=1) for k in (0, 5))
    assert (
        (np.diff(never.replica_divergence[:10]) > 0).all()
        and (often.replica_divergence[4::5] == 0).all()
        and (often.replica_divergence[:4] > 0).all()
    )
    alike = ring.train(task, rounds, N, ring.lost(0.05, 1, N, gathers=False), seed=1)
    assert (alike.replica_divergence == 0).all()
    plain = ring.train(task, rounds, N, ring.lost(0.0, 1, N), seed=1)
    assert plain.accuracy == pytest.approx(learning.train(task, [((),) * N] * rounds, seed=1), abs=0.005)

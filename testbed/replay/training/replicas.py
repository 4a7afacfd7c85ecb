"""The divergence of replicas: distances between the parameters of workers that train together."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

import numpy as np

from testbed.replay.training.layers import Array


def divergence(replicas: Sequence[Array], reference: Array) -> float:
    """max‖θi − θj‖ ÷ ‖θ‖, θ being ``reference``."""
    return max((_norm(a - b) for a, b in combinations(replicas, 2) if a is not b), default=0.0) / _norm(reference)


def _norm(numbers: Array) -> float:
    """Not `np.linalg.norm`, which uses BLAS: with that, times of later rounds moved by a nanosecond under virtual time."""
    return float(np.sqrt(np.square(numbers, dtype=np.float64).sum()))

"""How far apart the parameters of those who train together are."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

import numpy as np

from workloads.learning.layers import Array


def apart(replicas: Sequence[Array], one: Array) -> float:
    """max‖θi − θj‖ ÷ ‖θ‖, θ being ``one``."""
    pairs = ((a, b) for a, b in combinations(replicas, 2) if a is not b)
    return max((float(np.linalg.norm(a - b)) for a, b in pairs), default=0.0) / float(np.linalg.norm(one))

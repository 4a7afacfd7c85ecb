"""Invariant I10: how precisely an experiment's seeds determine the iteration time of a system (docs/reference/invariants.md)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from testbed.campaign.verdict.invariant import above
from testbed.core.runs.verdict import Row
from testbed.models.statistics import interval

SEEDS = 5  # fewer give too imprecise an estimate of the variation
LIMITS = above(0.05, 0.15)
NAME = "half the 95 % interval ÷ the mean, last ten iterations"


def repeatability(last10_mean_s: Sequence[float]) -> Row:
    """The verdict of I10 on the steady-state iteration times of a system's seeds, in s."""
    found = interval(last10_mean_s) if len(last10_mean_s) >= SEEDS else None
    if found is None:
        return Row("I10", NAME, None, LIMITS.named_limits(), "not applicable", f"fewer than {SEEDS} seeds")
    low, high = found
    value = (high - low) / 2 / float(np.mean(last10_mean_s))
    return Row("I10", NAME, value, LIMITS.named_limits(), LIMITS.status(value))

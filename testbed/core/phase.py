"""The part of an iteration in which a job needs a link: the input of flow schedulers on every backend."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Phase:
    """A span of one iteration in which a job needs ``bps`` (bit/s) of a link; in s after the iteration's start."""

    start_s: float
    end_s: float
    bps: float

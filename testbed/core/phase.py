"""When in an iteration a job wants a link: what flow schedulers are told, wherever a run is made."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Phase:
    """A span of one iteration in which a job wants ``bps`` of a link; in s after the iteration's start."""

    start_s: float
    end_s: float
    bps: float

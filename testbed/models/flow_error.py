"""Measured differences between the flow simulator's gain and that of the kernel (docs/explanation/flow-simulator.md)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class GainError:
    """The error of the gain, baseline ÷ system: simulated ÷ emulated − 1, without its sign."""

    mixes: int  # how many were compared
    mean: float
    worst: float


# Errors of runs within the range in which the simulator was compared with the kernel, by congestion control or scheduler.
ERRORS: Mapping[str, GainError] = {
    "reno": GainError(mixes=7, mean=0.014, worst=0.058),  # its mean iteration
    "cubic": GainError(mixes=7, mean=0.029, worst=0.076),
    "mltcp_reno": GainError(mixes=19, mean=0.021, worst=0.070),  # benchmarks/flow_mixes/errors.csv
}
OUTSIDE = GainError(mixes=14, mean=0.116, worst=0.342)


def gain_error(system: str, *, inside: bool) -> GainError:
    """The error for a system by its plain name; ``inside``: the run is within that range."""
    return ERRORS.get(system, OUTSIDE) if inside else OUTSIDE

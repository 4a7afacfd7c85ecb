"""The weight of a flow as a function of the share of its iteration's bytes that it has sent."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Force:
    """Weight by steps of r: from ``bounds[i-1]`` (0) to ``bounds[i]`` it is ``weights[i]``; the last bound is 1."""

    bounds: tuple[float, ...] = (1.0,)
    weights: tuple[float, ...] = (1.0,)


EQUAL = Force()

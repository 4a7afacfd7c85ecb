"""Theoretical curves of MLTCP, drawn over measurements.

Sources: the shift equation is equation 2 of the HotNets 2024 paper (quoted and derived by a third party). The candidate
functions, the loss as minus the integral of the shift, and the noise bound are recalled, not confirmed. The exponent is
derived here. Symbols: ``d_s`` difference of the starts of two jobs' communication, ``comm_s`` (A) isolated
communication time of a job, F(r) = S r + I, exponent p: a flow's share of a link is proportional to F^p (1: flows lose
packets at the same time; ½: losses are independent).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from testbed.congestion import curves

Factor = Callable[[np.ndarray], np.ndarray]  # F of bytes_ratio
SLOPE, INTERCEPT = curves.SLOPE / curves.ONE, curves.INTERCEPT / curves.ONE

_CURVES: dict[str, Callable[[np.ndarray, float, float], np.ndarray]] = {
    "linear": lambda r, s, i: s * r + i,
    "quadratic": lambda r, s, i: s * r**2 + i,
    "reciprocal": lambda r, s, i: i * (s + i) / (s + i - s * r),
    "concave": lambda r, s, i: s * (2 * r - r**2) + i,
    "falling": lambda r, s, i: s * (1 - r) + i,
    "falling_reciprocal": lambda r, s, i: i * (s + i) / (s + i - s * (1 - r)),
    "constant": lambda r, _s, i: np.full_like(r, i),
}


@dataclass(frozen=True)
class Curve:
    """F of the kernel (docs/reference/congestion-controls.md): a shape between I and S + I."""

    name: str = "linear"
    slope: float = SLOPE
    intercept: float = INTERCEPT

    def __call__(self, ratio: npt.ArrayLike) -> np.ndarray:
        """F at each bytes_ratio (0…1)."""
        r = np.asarray(ratio, dtype=float)
        return np.asarray(_CURVES[self.name](r, self.slope, self.intercept), dtype=float)


FAIR = Curve("constant", 0.0, 1.0)


def shift(d_s: npt.ArrayLike, comm_s: float, factor: Factor = Curve(), exponent: float = 1.0) -> np.ndarray:
    """Return by how much two identical jobs move apart in one iteration, in seconds: (A − D) (1 − (F(0) / F(D/A))^p).

    With F = S r + I and p = 1 this is the paper's S D (A − D) / (A I + S D). The shares are those at the moment the
    second job begins, constant until the first has ended. Zero for D ≥ A.
    """
    d = np.asarray(d_s, dtype=float)
    ratio = np.clip(d / comm_s, 0, 1)
    gain = 1 - (factor(np.zeros_like(ratio)) / factor(ratio)) ** exponent
    return np.asarray(np.clip(comm_s - d, 0, None) * gain)


def loss(d_s: npt.ArrayLike, comm_s: float, factor: Factor = Curve(), exponent: float = 1.0) -> np.ndarray:
    """The potential that each iteration descends: minus the integral of the shift from 0 to D, in s²."""
    grid = np.linspace(0, comm_s, 2001)
    values = shift(grid, comm_s, factor, exponent)
    integral = np.concatenate([[0.0], np.cumsum((values[1:] + values[:-1]) / 2 * np.diff(grid))])
    return np.asarray(-np.interp(np.asarray(d_s, dtype=float), grid, integral))


def noise_bound_s(sigma_s: float, slope: float = SLOPE, intercept: float = INTERCEPT, exponent: float = 1.0) -> float:
    """Most that noise of standard deviation ``sigma_s`` per iteration moves jobs from where they interleave, in s.

    For shares ∝ F^p it is 2 σ / (1 − (I / (S + I))^p): as published, for p = 1, 2 σ (1 + I/S), and more for p < 1.
    """
    return float(2 * sigma_s / (1 - (intercept / (slope + intercept)) ** exponent))

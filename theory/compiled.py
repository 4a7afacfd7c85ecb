"""Loops over arrays, compiled where Numba is installed (the extra ``scale``), else interpreted: slower, the same bytes."""

from __future__ import annotations

from collections.abc import Callable
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")


def compiled(function: Callable[P, R]) -> Callable[P, R]:
    """``function``, which uses numbers, arrays and named tuples of them alone."""
    try:
        from numba import njit  # noqa: PLC0415 (who does without it need not have it)
    except ImportError:
        return function
    found: Callable[P, R] = njit(cache=True, error_model="numpy")(function)
    return found

"""Loops over arrays, compiled where Numba is installed (the extra ``scale``), else interpreted: slower, the same bytes."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")


def is_there() -> bool:
    """Whether there is a compiler: without one everything is interpreted, and gives the same bytes."""
    return find_spec("numba") is not None


def compiled(function: Callable[P, R]) -> Callable[P, R]:
    """``function``, which uses numbers, arrays and named tuples of them alone."""
    try:
        from numba import config, njit  # noqa: PLC0415 (who does without it need not have it)
    except ImportError:
        return function
    setattr(config, "CACHE_DIR", str(_cache()))  # noqa: B010 (there is no other way to say it)
    found: Callable[P, R] = njit(cache=True, error_model="numpy")(function)
    return found


def _cache() -> Path:
    """A folder for this very source: Numba does not see that a function of another file has changed."""
    whole = hashlib.sha256()
    for path in sorted(Path(__file__).parent.glob("*.py")):
        whole.update(path.read_bytes())
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return home / "mltcp" / f"numba-{whole.hexdigest()[:16]}"

"""Loops over arrays: interpreted at first, compiled by Numba (the extra ``scale``) where they take long; the same bytes.

Compiling takes longer than most runs do interpreted. So each process interprets, and counts the time. Once that exceeds
`AFTER_S`, all loops are compiled. Compiled loops are kept on disk, and a later process reads them after `KEPT_AFTER_S`.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from types import FunctionType
from typing import Any, ParamSpec, TypeVar, cast

P = ParamSpec("P")
R = TypeVar("R")

AFTER_S = (
    25.0  # processor time of interpreted loops: about the time of compiling, so that waiting at most doubles the cost
)
KEPT_AFTER_S = 1.0  # the same if compiled loops are on disk: about the start time of Numba
NOTICE = "compiling the flow simulator, once (about half a minute)"

_loops: list[FunctionType] = []


def is_there() -> bool:
    """Return True if Numba is installed and ``NUMBA_DISABLE_JIT`` does not disable it."""
    return find_spec("numba") is not None and os.environ.get("NUMBA_DISABLE_JIT", "0") in ("", "0")


def compiled(function: Callable[P, R]) -> Callable[P, R]:
    """``function``, which uses numbers, arrays and named tuples of them alone: `Pace` may compile it."""
    _loops.append(cast(FunctionType, function))
    return function


class Pace:
    """The time spent in interpreted loops, which decides when to compile them."""

    def __init__(self) -> None:
        self.interpreted, self.spent_s = True, 0.0
        self.limit_s: float | None = None  # None: not decided yet

    def spent(self, seconds: float, say: Callable[[str], None]) -> None:
        """Record ``seconds`` of interpreted loops; after too many, compile all.

        ``say`` is called before the compilation, which takes time.
        """
        if not self.interpreted:
            return
        self.spent_s += seconds
        if self.limit_s is None:
            self.limit_s = float("inf") if not is_there() else KEPT_AFTER_S if _kept() else AFTER_S
        if self.spent_s > self.limit_s:
            if not _kept():
                say(NOTICE)
            compile_all()

    def now_compiled(self) -> None:
        """Record that all loops are compiled."""
        self.interpreted = False


pace = Pace()


def compile_all() -> None:
    """Compile every loop at its next call. Callers find loops by name in their modules, so the names are rebound."""
    from numba import config, njit  # noqa: PLC0415 (it takes long to import, and need not be there)

    setattr(config, "CACHE_DIR", str(_cache()))  # noqa: B010 (mypy rejects a plain assignment)
    jit: Any = njit(cache=True, error_model="numpy")
    for function in _loops:
        function.__globals__[function.__name__] = jit(function)
    pace.now_compiled()


def _kept() -> bool:
    """Whether a process has compiled the event loop, and kept it."""
    return next(_cache().glob("*/flow_simulator.advance-*.nbc"), None) is not None


def _cache() -> Path:
    """A folder for this very source: Numba does not see that a function of another file has changed."""
    whole = hashlib.sha256()
    for path in sorted(Path(__file__).parent.glob("*.py")):
        whole.update(path.read_bytes())
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return home / "mltcp" / f"numba-{whole.hexdigest()[:16]}"

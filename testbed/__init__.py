"""MLTCP testbed: run experiments (`run`, `sweep`), read their results (`load`); see docs/reference/api.md.

Names are loaded when they are first used: workers inside emulated hosts import this package, too.
"""

import os as _os
import sys as _sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from testbed import errors, testing
    from testbed.api import Results, load, run, sweep

if _sys.argv[:1] == ["-m"] and not getattr(_sys.flags, "safe_path", False):
    # `python -m testbed.…` puts the current folder first, and none of its modules is meant.
    _words = getattr(_sys, "orig_argv", [])
    if "-m" in _words[:-1] and _words[_words.index("-m") + 1].partition(".")[0] == "testbed":
        _sys.path[0] = _os.path.dirname(_os.path.dirname(_os.path.abspath(__file__)))

__version__ = "1.0.0"
__all__ = ["Results", "__version__", "errors", "load", "run", "sweep", "testing"]


def __getattr__(name: str) -> Any:
    """A name of the public interface, loaded now."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    if name in ("errors", "testing"):
        return import_module(f"{__name__}.{name}")
    found = getattr(import_module(f"{__name__}.api"), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})

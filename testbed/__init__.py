"""Runs one experiment: spec → network → jobs → measurements → run directory."""

import os as _os
import sys as _sys

if _sys.argv[:1] == ["-m"] and not getattr(_sys.flags, "safe_path", False):
    # `python -m testbed.…` puts the current folder first, and none of its modules is meant.
    _given = getattr(_sys, "orig_argv", [])
    if any(flag == "-m" and name.partition(".")[0] == "testbed" for flag, name in zip(_given, _given[1:])):  # noqa: B905
        _sys.path[0] = _os.path.dirname(_os.path.dirname(_os.path.abspath(__file__)))

__version__ = "0.1.0"

"""Runs one experiment: spec → network → jobs → measurements → run directory."""

import os as _os
import sys as _sys

if _sys.argv[:1] == ["-m"] and not getattr(_sys.flags, "safe_path", False):
    # `python -m testbed.…` puts the current folder first, and none of its modules is meant.
    _words = getattr(_sys, "orig_argv", [])
    if "-m" in _words[:-1] and _words[_words.index("-m") + 1].partition(".")[0] == "testbed":
        _sys.path[0] = _os.path.dirname(_os.path.dirname(_os.path.abspath(__file__)))

__version__ = "0.1.0"

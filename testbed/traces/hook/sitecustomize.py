"""Imported by Python at its start, before any script (see `testbed.traces.hook`)."""

import importlib.machinery
import importlib.util
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent

# Python imports only one sitecustomize: execute the one that this hides, if there is one.
_others = [entry for entry in sys.path if Path(entry or ".").resolve() != HERE]
_hidden = importlib.machinery.PathFinder.find_spec("sitecustomize", _others)
if _hidden is not None and _hidden.loader is not None:
    _hidden.loader.exec_module(importlib.util.module_from_spec(_hidden))

# Last on the path, so that no module of the script's environment is hidden.
sys.path.append(str(HERE.parents[1]))

try:
    from testbed.traces import hook

    hook.install()
except Exception as error:  # for any error the user's script starts
    print(f"mltcp: nothing is recorded: {type(error).__name__}: {error}", file=sys.stderr)

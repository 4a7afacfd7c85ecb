"""What ``python -m workloads`` can do, one file each.

A command is a module whose docstring is its description, with

``HELP``
    a line about it;
``add_arguments(parser) -> None``
    its arguments;
``run(parsed) -> int``
    carries it out and gives the exit code; raises `TraceError` for what a user can mend.

Its name is that of the module, less an underscore at the end (``import_``). Modules are
imported for every command, so what takes time to import is imported in ``run``.
"""

from __future__ import annotations

import importlib
import pkgutil
from pathlib import Path
from types import ModuleType


def names() -> list[str]:
    """The commands there are."""
    return sorted(module.name.rstrip("_") for module in pkgutil.iter_modules([str(Path(__file__).parent)]))


def find(name: str) -> ModuleType:
    """The command ``name``, one of `names`."""
    module = next(m.name for m in pkgutil.iter_modules([str(Path(__file__).parent)]) if m.name.rstrip("_") == name)
    return importlib.import_module(f"testbed.cli.traces.{module}")

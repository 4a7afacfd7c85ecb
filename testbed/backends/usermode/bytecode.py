"""Bytecode for user-mode Linux, where none is written: what is not compiled in advance would be compiled in every run.

pip compiles what it installs, and so does `make setup`. uv does not.
"""

from __future__ import annotations

import compileall
import importlib.util
import os
from collections.abc import Sequence
from pathlib import Path

PACKAGES = ("mininet", "pyroute2", "testbed")  # and of it the file that only runs in there, last
LAST = "testbed/linux/uml_init.py"


def ensure(site: Path, packages: Sequence[str] = PACKAGES, last: str = LAST) -> bool:
    """Compile the ``packages`` of ``site`` if nothing has yet; returns whether that was done. Where nothing can be written, nothing is."""
    if os.path.exists(importlib.util.cache_from_source(str(site / last))) or not os.access(site, os.W_OK):
        return False
    for folder in packages:
        compileall.compile_dir(site / folder, quiet=2, rx=_Last(site / last))
    compileall.compile_file(site / last, quiet=2)
    return True


class _Last:
    """A pattern, as `compileall` takes it, of the one file that is left out."""

    def __init__(self, file: Path) -> None:
        self.file = str(file)

    def search(self, path: str) -> bool:
        return path == self.file

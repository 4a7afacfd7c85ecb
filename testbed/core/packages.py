"""The project's packages, as `pyproject.toml` lists them: the one list there is."""

from __future__ import annotations

import tomllib
from functools import cache
from pathlib import Path

from testbed.core.environment import ROOT


@cache
def names() -> tuple[str, ...]:
    """Every top-level package."""
    found = tomllib.loads(Path(ROOT, "pyproject.toml").read_text())["tool"]["setuptools"]["packages"]["find"]["include"]
    return tuple(pattern.removesuffix("*") for pattern in found)


def that_run() -> tuple[str, ...]:
    """Those that have a part in a run: `analysis` reads what it leaves."""
    return tuple(name for name in names() if name != "analysis")

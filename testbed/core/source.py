"""The testbed's own files: what identifies a program version, and what another machine needs of it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from testbed.core.environment import IS_CHECKOUT, PACKAGES, ROOT

CONTENT = ("kernel", "topologies", "workloads")
READ = (".py", ".c", ".h", ".json", ".config")  # suffixes
REPORTS = "report"  # reads what a run leaves, and has no part in it


def files() -> Iterator[tuple[str, Path]]:
    """Every file that has a part in a run, sorted, with its name below the folder that holds the package `testbed`."""
    base = Path(PACKAGES)
    folders = [base / "testbed", *(Path(ROOT, name) for name in CONTENT if IS_CHECKOUT)]
    for folder in folders:
        for path in sorted(folder.rglob("*")):
            name = path.relative_to(base)
            if (
                path.is_file()
                and (path.suffix in READ or path.name in ("config", "Kbuild"))
                and name.parts[1] != REPORTS
            ):
                yield str(name), path

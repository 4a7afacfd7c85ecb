"""The testbed's own files: what identifies a program version, and what another machine needs of it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from testbed.core.environment import IS_CHECKOUT, PACKAGES, ROOT

CONTENT = ("kernel", "topologies", "workloads")
READ = (".py", ".c", ".h", ".json", ".config")  # suffixes
REPORTS = "report"  # reads results and does not affect a run


def files() -> Iterator[tuple[str, Path]]:
    """Yield every file whose content can affect a run, sorted, with its name relative to the folder of the package
    `testbed`."""
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

"""An experiment of schedules, computed as `sweep` is asked to: ``results/NAME/schedules.csv``, and what made it beside it."""

from __future__ import annotations

import csv
import io
import platform
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path

from core import text
from core.runs import documents, rundir
from core.runs.load import LoadError, load_schedules
from core.runs.schedules import ABOUT, KEYS, NUMBERS, TABLE, Asked, Made, digest
from core.runs.upgrade import VERSION
from testbed import __version__
from testbed.campaign import provenance
from testbed.planning import schedules

PACKAGES = ("numpy",)


def described(asked: Asked) -> str:
    """What would be computed, in a line."""
    count = len(asked.setting) * len(asked.servers) * asked.seeds
    return f"{asked.name}: {count * len(asked.scheduler)} schedules of {len(asked.scheduler)} schedulers, computed"


def compute(asked: Asked, out: Path, parallel: int, *, quiet: bool) -> Path:
    """The experiment's folder below ``out``; what is there, and was asked for and made alike, stays."""
    folder = out / asked.name
    if not _is_there(asked, folder):
        begun, cells = time.time(), schedules.cells(asked)
        with ProcessPoolExecutor(parallel) as pool:
            rows = [row for found in pool.map(schedules.rows, cells) for row in found]
        table = _csv(rows)
        made = Made(
            version=VERSION, experiment=asked.name, asked=asked, testbed=__version__, source_sha256=provenance.source_sha256(),
            git_commit=provenance.commit(), python=platform.python_version(),
            packages={name: metadata.version(name) for name in PACKAGES}, command=tuple(provenance.command_line()),
            started=datetime.fromtimestamp(begun, UTC).isoformat(timespec="seconds"), wall_s=time.time() - begun, digest=digest(table),
        )  # fmt: skip
        rundir.store({TABLE: table, ABOUT: documents.encode(made)}, folder, out)
    if not quiet:
        print(text.plain(str(folder / TABLE)), file=sys.stderr)
    return folder


def _is_there(asked: Asked, folder: Path) -> bool:
    try:
        made = load_schedules(folder).made
    except LoadError:
        return False
    return (made.asked, made.testbed, made.source_sha256) == (asked, __version__, provenance.source_sha256())


def _csv(rows: Sequence[schedules.Row]) -> bytes:
    file = io.StringIO(newline="")
    writer = csv.DictWriter(file, [*KEYS, *NUMBERS], lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return file.getvalue().encode()

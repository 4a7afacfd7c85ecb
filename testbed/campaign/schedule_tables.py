"""An experiment of schedules, computed on behalf of `sweep`: ``results/NAME/schedules.csv``, and its provenance next to it."""

from __future__ import annotations

import csv
import hashlib
import io
import platform
import signal
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path

import msgspec

from testbed import __version__
from testbed.campaign import provenance
from testbed.campaign.stored.folders import Again
from testbed.core import text
from testbed.core.children import end_with
from testbed.core.errors import RequestError
from testbed.core.heartbeat import Counter, Heartbeat
from testbed.core.locks import Locks
from testbed.core.runs import documents, rundir
from testbed.core.runs.format_version import VERSION
from testbed.core.runs.load import LoadError, load_schedules
from testbed.core.runs.schedules import ABOUT, KEYS, NUMBERS, TABLE, Asked, Made, digest
from testbed.planning import schedules
from testbed.planning.names import DIGITS, LONGEST

PACKAGES = ("numpy",)


def described(asked: Asked) -> str:
    """Describe the computation in a line."""
    count = len(asked.setting) * len(asked.servers) * asked.seeds
    schedules = text.count(count * len(asked.scheduler), "schedule")
    return f"{asked.name}: {schedules} of {text.count(len(asked.scheduler), 'scheduler')}, computed"


def compute(
    asked: Asked, out: Path, parallel: int, again: Again = "never", locks: Locks | None = None, *, quiet: bool
) -> Path:
    """Compute the table of ``asked`` and return its folder below ``out``; a stored result of the same request and
    program stays.

    If another experiment holds that folder, the name is extended by the fields that differ. A table with another number
    of seeds is computed again. Raises `RequestError` if another program's table is there and ``again`` is "never".
    """
    folder = out / asked.name
    if fields := _fields(asked, folder):
        digest_of = hashlib.sha256(msgspec.json.encode(asked)).hexdigest()
        folder = out / f"{'-'.join((asked.name, *fields))[:LONGEST]}-{digest_of[:DIGITS]}"
    if locks is not None:
        locks.take(folder.name)
    differences = _differences(folder)
    if differences and again == "never":
        raise RequestError(
            f"{folder / TABLE}: differs from what would be computed now ({'; '.join(differences)}). Nothing was computed or "
            "replaced. Add --renew or --again to replace it, or choose another results folder (--out)."
        )
    if differences != [] or again == "always" or load_schedules(folder).made.asked != asked:
        begun, cells, rows = time.time(), schedules.cells(asked), list[schedules.Row]()
        counter = Counter(len(cells), "settings")
        pool = ProcessPoolExecutor(parallel, initializer=end_with, initargs=(signal.SIGKILL,))
        with pool, Heartbeat(counter.line, active=not quiet):
            for found in pool.map(schedules.rows, cells):
                rows += found
                counter.advance()
        table = _csv(rows)
        made = Made(
            version=VERSION, experiment=asked.name, asked=asked, testbed=__version__, source_sha256=provenance.source_sha256(),
            git_commit=provenance.commit(), python=platform.python_version(),
            packages={name: metadata.version(name) for name in PACKAGES}, command=tuple(provenance.command_line()),
            started=datetime.fromtimestamp(begun, UTC).isoformat(timespec="seconds"), wall_s=time.time() - begun, digest=digest(table),
        )  # fmt: skip
        rundir.store({TABLE: table, ABOUT: documents.encode(made)}, folder, out)
    return folder


def _fields(asked: Asked, folder: Path) -> list[str]:
    """The fields in which the experiment of an experiment folder differs."""
    try:
        made = load_schedules(folder).made
    except LoadError:
        return []
    return [
        name
        for name in Asked.__struct_fields__
        if name != "seeds" and getattr(made.asked, name) != getattr(asked, name)
    ]


def _differences(folder: Path) -> list[str] | None:
    """Return how the program that made the stored table differs from this one; None if there is no table."""
    if not folder.is_dir() or not any(folder.iterdir()):
        return None
    try:
        made = load_schedules(folder).made
    except LoadError as error:
        return [str(error)]
    if (made.testbed, made.source_sha256) == (__version__, now := provenance.source_sha256()):
        return []
    return [f"program: source {made.source_sha256[:12]} → {now[:12]}"]


def _csv(rows: Sequence[schedules.Row]) -> bytes:
    file = io.StringIO(newline="")
    writer = csv.DictWriter(file, [*KEYS, *NUMBERS], lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return file.getvalue().encode()

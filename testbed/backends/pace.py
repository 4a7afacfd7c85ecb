"""Wall times of this machine's last runs relative to the estimate of `testbed.planning.cost`, kept below the cache folder.

The record is never required. A file that is damaged counts as absent. A write replaces the file at once, so that processes
that write at the same time lose a run of the record at most.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable
from pathlib import Path
from statistics import median

import msgspec

from testbed.core import folders, input_files
from testbed.core.errors import RequestError
from testbed.core.runs.plan import Plan
from testbed.linux.loading import bpf
from testbed.planning import cost
from testbed.spec import backend_names

FILE = "pace.json"
LAST = 9  # runs of a kind that count
FARTHEST = 20.0  # largest plausible ratio of a run's time to the expected one; larger ratios are not recorded
MOST_BYTES = 1 << 16


class Record(msgspec.Struct, frozen=True):
    """Wall time ÷ expected time of the last runs, oldest first, by kind."""

    version: int = 1
    ratios: dict[str, list[float]] = {}


def expected_s(plan: Plan, backend: str, record: Record) -> float:
    """Wall seconds that ``plan`` takes on ``backend``."""
    return cost.usual_s(plan, backend) * factor(record, kind(plan, backend))


def total_s(plans: Iterable[Plan], backend: str) -> float:
    """Wall seconds of a command that runs these plans one after the other."""
    record = read()
    return cost.COMMAND_S + sum(expected_s(plan, backend, record) for plan in plans)


def factor(record: Record, kind: str) -> float:
    """The median of the last runs of a kind; 1 without any."""
    found = [ratio for ratio in record.ratios.get(kind, [])[-LAST:] if 1 / FARTHEST <= ratio <= FARTHEST]
    return median(found) if found else 1.0


def kind(plan: Plan, backend: str) -> str:
    """Return the group of runs whose duration is comparable: same backend, and packets made by the kernel or by a
    program."""
    if backend_names.is_computed(backend) or backend_names.is_remote(backend):
        return backend
    return f"{backend} {'tcp' if all(job.by_tcp for job in plan.jobs) else 'datagrams'}"


def read() -> Record:
    """Read the wall times of this user's last runs; an empty record if none can be read."""
    try:
        found = msgspec.json.decode(input_files.read_bytes(_path(), MOST_BYTES), type=Record)
    except (RequestError, ValueError, RecursionError):  # not JSON, or not UTF-8
        return Record()
    return found if found.version == Record().version else Record()


def note(plan: Plan, backend: str, took_s: float) -> None:
    """Record the wall time ``took_s`` of a run. An unwritable record and an implausible time are ignored."""
    ratio = took_s / cost.usual_s(plan, backend)
    if not 1 / FARTHEST <= ratio <= FARTHEST or os.environ.get("SUDO_UID"):
        return
    before, which = read(), kind(plan, backend)
    ratios = {**before.ratios, which: [*before.ratios.get(which, []), round(ratio, 4)][-LAST:]}
    path = _path()
    with contextlib.suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        folders.put(path, msgspec.json.encode(Record(ratios=ratios)))


def _path() -> Path:
    return bpf.cache_dir() / FILE

"""How long runs take on this machine against what `testbed.planning.cost` expects: the last ones, kept below the cache folder.

The record is never required. A file that is damaged, or that another user could write, counts as absent. A write replaces the
file at once, so that processes that write at the same time lose a run of the record at most.
"""

from __future__ import annotations

import contextlib
import os
import stat
import tempfile
from collections.abc import Iterable
from pathlib import Path
from statistics import median

import msgspec

from testbed.core.runs.plan import Plan
from testbed.linux.loading import bpf
from testbed.planning import cost
from testbed.spec import place as where

FILE = "pace.json"
LAST = 9  # runs of a kind that count
FARTHEST = 20.0  # the most by which a run may differ from what is expected: beyond, the record is wrong
LARGEST_BYTES = 1 << 16


class Record(msgspec.Struct, frozen=True):
    """Wall time ÷ expected time of the last runs, oldest first, by kind."""

    version: int = 1
    ratios: dict[str, list[float]] = {}


def expected_s(plan: Plan, place: str, record: Record) -> float:
    """Wall seconds that ``plan`` takes at ``place``."""
    return cost.usual_s(plan, place) * factor(record, kind(plan, place))


def total_s(plans: Iterable[Plan], place: str) -> float:
    """Wall seconds of a command that runs these plans one after the other."""
    record = read()
    return cost.COMMAND_S + sum(expected_s(plan, place, record) for plan in plans)


def factor(record: Record, kind: str) -> float:
    """The median of the last runs of a kind; 1 without any."""
    found = [ratio for ratio in record.ratios.get(kind, [])[-LAST:] if 1 / FARTHEST <= ratio <= FARTHEST]
    return median(found) if found else 1.0


def kind(plan: Plan, place: str) -> str:
    """What runs are compared with: those at the same place whose packets are made in the same way."""
    if where.is_computed(place) or where.is_remote(place):
        return place
    return f"{place} {'tcp' if all(job.by_tcp for job in plan.jobs) else 'datagrams'}"


def read() -> Record:
    """What this user's last runs took; an empty record if there is none that can be trusted."""
    try:
        fd = os.open(_path(), os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return Record()
    try:
        about = os.fstat(fd)
        own = about.st_uid == os.geteuid() and not about.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
        if not own or not stat.S_ISREG(about.st_mode) or about.st_size > LARGEST_BYTES:
            return Record()
        found = msgspec.json.decode(os.read(fd, LARGEST_BYTES), type=Record)
    except (OSError, ValueError, RecursionError):  # what is no JSON, or no UTF-8
        return Record()
    finally:
        os.close(fd)
    return found if found.version == Record().version else Record()


def note(plan: Plan, place: str, took_s: float) -> None:
    """A run took so long here. Nothing happens if that cannot be kept, or is too far from what is expected."""
    ratio = took_s / cost.usual_s(plan, place)
    if not 1 / FARTHEST <= ratio <= FARTHEST or os.environ.get("SUDO_UID"):
        return
    before, which = read(), kind(plan, place)
    ratios = {**before.ratios, which: [*before.ratios.get(which, []), round(ratio, 4)][-LAST:]}
    path = _path()
    with contextlib.suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        fd, aside = tempfile.mkstemp(prefix=f".{path.name}-", dir=path.parent)
        try:
            with os.fdopen(fd, "wb") as file:
                file.write(msgspec.json.encode(Record(ratios=ratios)))
            os.replace(aside, path)
        except OSError:
            os.unlink(aside)
            raise


def _path() -> Path:
    return bpf.cache_dir() / FILE

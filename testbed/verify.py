"""``run.py --verify RUNDIR``: the same run again, compared byte for byte."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import msgspec

from testbed import rundir, substrates
from testbed.errors import RequestError
from testbed.experiment import TABLES, digest, wall_limit_s
from testbed.plan import Plan
from testbed.spec import Spec
from testbed.substrates import Substrate


def repeat(folder: Path, linux_source: Path | None) -> list[str]:
    """Run what ``folder`` holds once more; what differs, one line each (none: identical).

    Raises `RequestError` if it is no run directory, or of a clock that never repeats.
    """
    manifest, plan, before = _read(folder)
    substrate = substrates.find("uml", [plan], linux_source)
    archive = substrate.run(plan, lambda event: None, wall_limit_s(Spec(), plan, substrate))
    after = rundir.unpack(archive)
    lines = [line for name in TABLES if (line := _difference(name, before[name], after[name]))]
    return lines + _reasons(manifest, substrate) if lines else []


def _read(folder: Path) -> tuple[dict[str, Any], Plan, dict[str, bytes]]:
    try:
        manifest = json.loads((folder / "manifest.json").read_text())
        before = {name: (folder / name).read_bytes() for name in TABLES}
        if manifest["version"] != 1:
            raise RequestError(f"{folder}: this testbed knows version 1 of the manifest, not {manifest['version']!r}.")
        plan = msgspec.convert(manifest["plan"], Plan)
        recorded, where = manifest["digest"], manifest["substrate"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise RequestError(
            f"{folder} is not a run directory that can be repeated ({type(error).__name__}: {error}); "
            "give one such as results/NAME/mltcp_reno/1."
        ) from error
    if where != "uml":
        raise RequestError(
            f"{folder} ran on `{where}`, against a real clock: it never repeats to the byte. Use --on uml."
        )
    if digest(before) != recorded:
        raise RequestError(
            f"{folder}: its tables are not the ones its manifest was written for; somebody changed them."
        )
    return manifest, plan, before


def _difference(name: str, before: bytes, after: bytes) -> str:
    """The first line in which two tables differ."""
    if before == after:
        return ""
    pairs = itertools.zip_longest(before.splitlines(), after.splitlines(), fillvalue=b"(nothing)")
    for number, (old, new) in enumerate(pairs, 1):
        if old != new:
            return f"{name} differs from line {number} on: {old.decode()} → {new.decode()}"
    return f"{name} differs in its ends of lines"


def _reasons(manifest: dict[str, Any], substrate: Substrate) -> list[str]:
    """What else is not as it was."""
    now = substrate.identity()
    return [] if manifest["uml"] == now else [f"the kernel is another one: {manifest['uml']} → {now}"]

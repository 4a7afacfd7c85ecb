"""``run.py --verify RUNDIR``: the same run again, compared byte for byte."""

from __future__ import annotations

import itertools
import json
import platform
from pathlib import Path
from typing import Any

import msgspec

from analysis.load import TABLES, digest
from testbed import rundir
from testbed.errors import RequestError
from testbed.experiment import congestion_control_sha256, provenance, topology_sha256, wall_limit_s
from testbed.plan import Plan
from testbed.substrates import Substrate, uml
from workloads.units import Duration


def repeat(folder: Path, linux_source: Path | None, wall_limit: Duration | None) -> list[str]:
    """Run what ``folder`` holds once more; what differs, one line each (none: identical).

    Raises `RequestError` if it is no run directory, or of a clock that never repeats.
    """
    manifest, plan, before = read(folder)
    substrate = uml.find(linux_source, prefer=manifest["uml"])
    substrate.check(plan)
    archive = substrate.run(plan, lambda event: None, wall_limit_s(wall_limit, plan, substrate))
    after = rundir.unpack(archive)
    lines = [line for name in TABLES if (line := _difference(name, before[name], after[name]))]
    return lines + _reasons(manifest, substrate) if lines else []


def read(folder: Path) -> tuple[dict[str, Any], Plan, dict[str, bytes]]:
    """Manifest, plan and tables of a run that can be repeated; raises `RequestError`."""
    try:
        manifest = json.loads((folder / "manifest.json").read_text())
        before = {name: (folder / name).read_bytes() for name in TABLES}
        if manifest["version"] != 1:
            raise RequestError(f"{folder}: this testbed knows version 1 of the manifest, not {manifest['version']!r}.")
        plan = msgspec.convert(manifest["plan"], Plan)
        recorded, where = manifest["digest"], manifest["substrate"]
    except (OSError, ValueError, KeyError, TypeError, msgspec.MsgspecError) as error:
        raise RequestError(
            f"{folder} is not a run directory that can be repeated ({type(error).__name__}: {error}); "
            "give one such as results/NAME/mltcp_reno/1."
        ) from error
    if where != "uml":
        raise RequestError(
            f"{folder} ran on `{where}`, against a real clock: it never repeats to the byte. Use --on uml."
        )
    if plan.topology.endswith(".py") and not Path(plan.topology).is_file():
        raise RequestError(f"{folder}: its topology {plan.topology} is not there any more.")
    for cc in plan.ccs:
        if cc.source is not None and not Path(cc.source).is_file():
            raise RequestError(f"{folder}: its congestion control {cc.source} is not there any more.")
    if topology_sha256(plan) != manifest.get("topology_sha256"):
        raise RequestError(f"{folder}: its topology {plan.topology} is not what it was.")
    if congestion_control_sha256(plan) != manifest.get("congestion_control_sha256", {}):
        raise RequestError(f"{folder}: its congestion control {plan.cc.spec} is not what it was.")
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
    now = {**provenance(substrate, [], 0.0), "python": platform.python_version()}
    names = {"uml": "kernel", "git_commit": "testbed's commit", "packages": "set of packages", "python": "Python"}
    return [
        f"the {what} is another one: {manifest.get(key)} → {now[key]}"
        for key, what in names.items()
        if manifest.get(key) != now[key]
    ]

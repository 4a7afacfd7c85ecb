"""``mltcp verify RUNDIR``: the same run again, compared byte for byte."""

from __future__ import annotations

import itertools
import platform
from pathlib import Path

from testbed.backends import Backend, flow, uml
from testbed.backends.progress import patience
from testbed.campaign import stored
from testbed.campaign.provenance import congestion_control_sha256, provenance, topology_sha256
from testbed.core.errors import RequestError
from testbed.core.runs import documents, load, rundir
from testbed.core.runs.format_version import VERSION
from testbed.core.runs.load import TABLES, LoadError
from testbed.core.runs.manifest import Manifest
from testbed.core.text import quoted, shown
from testbed.core.units import Duration

SOMETIMES = (
    "priority_queues.csv",
    "jobs.csv",
    "messages.csv",
    "nics.csv",
    "training.csv",
)  # tables that some runs have


def repeat(folder: Path, linux_source: Path | None, wall_limit: Duration | None, *, trusted: bool) -> list[str]:
    """Repeat the run of the run directory ``folder``; what differs, one line each (none: identical).

    Raises `RequestError` if it is no run directory, of a clock that never repeats, or if it names files that would be
    executed and is not ``trusted``.
    """
    manifest, before = read(folder, trusted=trusted)
    plan = manifest.plan
    backend: Backend = flow.FlowLevel() if manifest.clock == "model" else uml.find(linux_source, prefer=manifest.uml)
    backend.check(plan)
    archive = backend.run(plan, lambda _event: None, patience(plan, None if wall_limit is None else wall_limit / 1e9))
    after = rundir.unpack(archive)
    lines = [line for name in before if (line := _difference(name, before[name], after.get(name, b"")))]
    return lines + _reasons(manifest, backend) if lines else []


def read(folder: Path, *, trusted: bool) -> tuple[Manifest, dict[str, bytes]]:
    """Manifest and tables of a run that can be repeated; raises `RequestError`."""
    try:
        load.check_one_run(folder)
    except LoadError as error:
        raise RequestError(str(error)) from error
    try:
        manifest_bytes = load.content(folder / "manifest.json")
        if (version := documents.read_version(manifest_bytes)) != VERSION:
            raise RequestError(
                f"{folder}: this release repeats runs of format version {VERSION}, not {quoted(version)}: "
                "repeat it with the release that wrote it."
            )
        manifest = documents.decode(manifest_bytes, Manifest)
        whole = load.are_whole(folder, manifest)
    except (LoadError, OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise RequestError(
            f"{folder} is not a run directory that can be repeated ({error}). "
            "Name one, such as results/NAME/mltcp_reno/1."
        ) from error
    if manifest.clock == "real":
        raise RequestError(
            f"{folder} ran on `{manifest.backend}`, on a real clock, so it cannot repeat byte for byte. Verify a run of --on uml."
        )
    plan = manifest.plan
    stored.check(plan, folder / "manifest.json")
    stored.check_trusted(plan, folder, trusted=trusted)
    if plan.topology.endswith(".py") and not Path(plan.topology).is_file():
        raise RequestError(f"{folder}: the file of its topology, {plan.topology}, is missing. Restore it.")
    for cc in plan.ccs:
        if cc.source is not None and not Path(cc.source).is_file():
            raise RequestError(f"{folder}: the file of its congestion control, {cc.source}, is missing. Restore it.")
    if topology_sha256(plan) != manifest.topology_sha256:
        raise RequestError(
            f"{folder}: its topology {plan.topology} has changed since the run. Restore it, or make a new run."
        )
    if congestion_control_sha256(plan) != manifest.congestion_control_sha256:
        raise RequestError(
            f"{folder}: the program of its system {plan.system.label} has changed since the run. Restore it, or make a new run."
        )
    if not whole:
        raise RequestError(
            f"{folder}: its tables differ from its manifest (SHA-256), so they were changed after the run. Run it again."
        )
    names = [*TABLES, *(name for name in SOMETIMES if (folder / name).is_file())]
    return manifest, {name: load.content(folder / name, load.MOST_TABLE_BYTES) for name in names}


def _difference(name: str, before: bytes, after: bytes) -> str:
    """The first line in which two tables differ."""
    if before == after:
        return ""
    pairs = itertools.zip_longest(before.splitlines(), after.splitlines(), fillvalue=b"(nothing)")
    for number, (old, new) in enumerate(pairs, 1):
        if old != new:
            return f"{name} differs from line {number} on: {shown(old.decode(errors='replace'), 200)} → {shown(new.decode(errors='replace'), 200)}"
    return f"{name} differs in its ends of lines"


def _reasons(manifest: Manifest, backend: Backend) -> list[str]:
    """Return other differences between the manifest and this machine: kernel, commit, packages, Python."""
    now = provenance(backend, manifest.plan, (), 0.0)
    pairs = {
        "kernel": (manifest.uml and manifest.uml.content, now.uml and now.uml.content),
        "testbed's commit": (manifest.git_commit, now.git_commit),
        "set of packages": (manifest.packages, now.packages),
        "Python": (manifest.python, platform.python_version()),
    }
    return [f"the {what} is another one: {then} → {here}" for what, (then, here) in pairs.items() if then != here]

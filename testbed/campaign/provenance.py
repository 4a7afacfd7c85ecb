"""What made a run: program, packages, commit, kernel, command; and whether a stored one was made by the same."""

from __future__ import annotations

import hashlib
import platform
import subprocess
import sys
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from functools import cache
from importlib import metadata
from pathlib import Path

import msgspec

from core import packages
from core.environment import ROOT
from core.runs.load import LoadError, load_run
from core.runs.manifest import Provenance, Remote, UserModeLinux
from core.runs.plan import Plan
from testbed import __version__
from testbed.substrates import Substrate

PACKAGES = ("mininet", "pyroute2", "msgspec", "numpy", "pandas", "scipy", "matplotlib", "rich")


def installed() -> dict[str, str]:
    """The packages that runs and their results are made with, by name; their versions."""
    return {name: metadata.version(name) for name in PACKAGES}


def provenance(substrate: Substrate, plan: Plan, command: Sequence[str], begun: float) -> Provenance:
    """What made a run of ``plan`` that has ``begun`` at this time and ends now."""
    identity = substrate.identity()
    return Provenance(
        testbed=__version__,
        substrate=substrate.name,
        clock=substrate.clock,
        uml=identity if isinstance(identity, UserModeLinux) else None,
        remote=identity if isinstance(identity, Remote) else None,
        packages=installed(),
        git_commit=commit(),
        source_sha256=source_sha256(),
        command=tuple(command),
        started=datetime.fromtimestamp(begun, UTC).isoformat(timespec="seconds"),
        wall_s=time.time() - begun,
        topology_sha256=topology_sha256(plan),
        congestion_control_sha256=congestion_control_sha256(plan),
    )


def is_there(plan: Plan, folder: Path, substrate: Substrate) -> bool:
    """Whether ``folder`` holds the results of this very run, complete (a folder always is) and of this testbed."""
    try:
        manifest = load_run(folder).manifest
    except LoadError:
        return False
    return (
        msgspec.json.encode(manifest.plan) == msgspec.json.encode(plan)
        and _same_maker(manifest.made, provenance(substrate, plan, (), 0.0))
        and (
            manifest.uml is not None
            or manifest.remote is not None
            or manifest.clock == "model"
            or platform.version() in manifest.kernel
        )
    )


def _same_maker(then: Provenance, now: Provenance) -> bool:
    """Whether two runs were made by the same, in all that a result depends on."""
    kernels = [None if each.remote is None else each.remote.kernel for each in (then, now)]
    same = ("testbed", "substrate", "uml", "source_sha256", "topology_sha256", "congestion_control_sha256")
    return kernels[0] == kernels[1] and all(getattr(then, name) == getattr(now, name) for name in same)


def topology_sha256(plan: Plan) -> str | None:
    """Of a topology from outside the checkout: its file may change."""
    return hashlib.sha256(Path(plan.topology).read_bytes()).hexdigest() if plan.topology.endswith(".py") else None


def congestion_control_sha256(plan: Plan) -> dict[str, str]:
    """Of congestion controls from outside the checkout, by their specs."""
    return {cc.spec: hashlib.sha256(Path(cc.source).read_bytes()).hexdigest() for cc in plan.ccs if cc.source}


@cache
def source_sha256() -> str:
    """Of everything that runs: the same commit may have changes, and another one may have changed documentation only."""
    whole = hashlib.sha256()
    for room in ("kernel", *sorted(packages.that_run())):
        for path in sorted(Path(ROOT, room).rglob("*")):
            if path.suffix in (".py", ".c", ".h", ".json", ".config") or path.name in ("config", "Kbuild"):
                whole.update(f"{path.relative_to(ROOT)} {path.stat().st_size}\n".encode() + path.read_bytes())
    return whole.hexdigest()


@cache
def commit() -> str | None:
    """The checkout's commit, with ``+changes`` if it differs from it; None outside a checkout."""
    git = ["git", "-c", f"safe.directory={ROOT}", "-C", ROOT]
    try:
        commit = subprocess.run([*git, "rev-parse", "HEAD"], capture_output=True, text=True, check=True)
        status = subprocess.run([*git, "status", "--porcelain"], capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return None
    return commit.stdout.strip() + ("+changes" if status.stdout.strip() else "")


def command_line() -> list[str]:
    """The command as it was typed, as far as it is known."""
    return [Path(sys.argv[0]).name, *sys.argv[1:]]

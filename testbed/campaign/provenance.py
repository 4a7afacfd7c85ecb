"""Provenance of a run: program, packages, commit, kernel, command; and its comparison with a stored run."""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import platform
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextvars import ContextVar
from datetime import UTC, datetime
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

import msgspec

from testbed import __version__
from testbed.backends import Backend
from testbed.core import source
from testbed.core.environment import ROOT
from testbed.core.runs.load import LoadError, load_run
from testbed.core.runs.manifest import Asked, Provenance, Remote, UserModeLinux
from testbed.core.runs.plan import Plan
from testbed.core.text import shown

MOST_PATHS = 3  # number of a plan's paths that a message names
PACKAGES = ("mininet", "pyroute2", "msgspec", "numpy", "pandas", "scipy", "matplotlib", "rich")


def installed() -> dict[str, str]:
    """The packages that runs and their results are made with, by name; their versions."""
    return {name: metadata.version(name) for name in PACKAGES}


def provenance(
    backend: Backend, plan: Plan, command: Sequence[str], begun: float, asked: Asked | None = None
) -> Provenance:
    """Provenance of a run of ``plan`` that began at ``begun`` and ends now."""
    identity = backend.identity()
    return Provenance(
        testbed=__version__,
        backend=backend.name,
        clock=backend.clock,
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
        asked=asked,
    )


def differences(plan: Plan, folder: Path, backend: Backend, asked: Asked | None = None) -> list[str] | None:
    """Return how the stored run in ``folder`` differs from the run that ``plan`` would make; None if there is no run.

    Empty: the same plan, files, program, and kernel. A folder with other content counts as a different run.
    """
    try:
        if not any(folder.iterdir()):
            return None
        manifest = load_run(folder).manifest
    except FileNotFoundError:
        return None
    except (LoadError, OSError) as error:
        return [str(error).rstrip(".")]
    then, now = manifest.made, provenance(backend, plan, (), 0.0, asked)
    found = [f"file {name}: SHA-256 {before} → {after}" for name, before, after in _files(then, now)]
    if then.testbed != now.testbed or then.source_sha256 != now.source_sha256:
        found.append(f"program: {_program(then)} → {_program(now)}")
    if then.backend != now.backend:
        found.append(f"backend: {then.backend} → {now.backend}")
    elif (before := _kernel(then, manifest.kernel)) != (after := _kernel(now, platform.version())):
        found.append(f"kernel: {before} → {after}")
    return found + _planned(manifest.plan, plan)


def is_there(plan: Plan, folder: Path, backend: Backend) -> bool:
    """Return True if ``folder`` holds the results of exactly this run, by this testbed; a run directory is always complete."""
    return differences(plan, folder, backend) == []


def _files(then: Provenance, now: Provenance) -> list[tuple[str, str, str]]:
    """Return the files that have changed, with the first digits of their old and new digests."""
    if then.asked is not None and now.asked is not None:
        both = [then.asked.files, now.asked.files]
    else:
        topologies = [
            {} if one.topology_sha256 is None else {"of the topology": one.topology_sha256} for one in (then, now)
        ]
        both = [
            {**topology, **made.congestion_control_sha256}
            for topology, made in zip(topologies, (then, now), strict=True)
        ]
    names = sorted({*both[0], *both[1]})
    found = [(name, *(one.get(name, "none")[:12] for one in both)) for name in names]
    return [(name, before, after) for name, before, after in found if before != after]


def _program(made: Provenance) -> str:
    return f"testbed {made.testbed}, source {made.source_sha256[:12]}"


def _kernel(made: Provenance, own: str) -> str:
    """Which one a run was on, in words that are the same for the same kernel; ``own``: this machine's."""
    if made.clock == "model":
        return ""
    if made.remote is not None:
        return made.remote.kernel
    if made.uml is None:
        return platform.version() if platform.version() in own else own
    return f"{made.uml.version} ({hashlib.sha256(msgspec.json.encode(made.uml.content)).hexdigest()[:12]})"


def _planned(then: Plan, now: Plan) -> list[str]:
    """The first fields in which two plans differ. Which run of an experiment measured the capacity of its path is no matter."""
    before, after = (msgspec.json.encode(msgspec.structs.replace(plan, measure_capacity=False)) for plan in (then, now))
    if before == after:
        return []
    changed = _changed(msgspec.json.decode(before), msgspec.json.decode(after), "plan")
    paths = list(itertools.islice(changed, MOST_PATHS + 1))
    return [*paths[:MOST_PATHS], *(["more of the plan"] if len(paths) > MOST_PATHS else [])]


def _changed(before: Any, after: Any, path: str) -> Iterator[str]:
    if isinstance(before, dict) and isinstance(after, dict):
        for key in dict.fromkeys([*before, *after]):
            yield from _changed(before.get(key), after.get(key), f"{path}.{key}")
    elif isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        for number, (one, other) in enumerate(zip(before, after, strict=True)):
            yield from _changed(one, other, f"{path}.{number}")
    elif before != after:
        yield f"{path}: {shown(repr(before), 40)} → {shown(repr(after), 40)}"


def topology_sha256(plan: Plan) -> str | None:
    """Digest of a topology file from outside the checkout, because the file may change; None for a built-in topology."""
    return hashlib.sha256(Path(plan.topology).read_bytes()).hexdigest() if plan.topology.endswith(".py") else None


def congestion_control_sha256(plan: Plan) -> dict[str, str]:
    """Digests of congestion controls from outside the checkout, by their specs."""
    return {cc.spec: hashlib.sha256(Path(cc.source).read_bytes()).hexdigest() for cc in plan.ccs if cc.source}


@cache
def source_sha256() -> str:
    """Digest of all source that runs: a commit may have local changes, and another commit may change only documentation."""
    whole = hashlib.sha256()
    for name, path in source.files():
        whole.update(f"{name} {path.stat().st_size}\n".encode() + path.read_bytes())
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


_call: ContextVar[list[str] | None] = ContextVar("call", default=None)


@contextlib.contextmanager
def called(*words: str) -> Iterator[None]:
    """Runs made inside record ``words`` as their command, because the program's arguments do not describe them."""
    token = _call.set(list(words))
    try:
        yield
    finally:
        _call.reset(token)


def command_line() -> list[str]:
    """The typed command, if known; inside `called`, the call."""
    if (words := _call.get()) is not None:
        return words
    return [Path(sys.argv[0]).name, *sys.argv[1:]]

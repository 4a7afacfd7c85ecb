"""Run every plan of a spec on a substrate, store the run directories, sum them up."""

from __future__ import annotations

import hashlib
import io
import json
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache, partial
from importlib import metadata
from pathlib import Path
from typing import Any

import msgspec
import pandas as pd

from core import folders, packages
from core.environment import ROOT
from core.runs import disturbed, rundir
from core.runs.load import Run, digest, load_experiment, load_run
from core.runs.metrics import alone, iteration_times
from core.runs.plan import Plan, alone_folder
from testbed import __version__
from testbed.campaign.summary import summarise
from testbed.campaign.verdict import Case, judge
from testbed.linux.sampling import disturbances
from testbed.planning.plan import plans
from testbed.planning.profiles import Profile
from testbed.spec import Spec
from testbed.substrates import Substrate
from testbed.substrates.progress import patience

PACKAGES = ("mininet", "pyroute2", "msgspec", "numpy", "pandas", "scipy", "matplotlib", "rich")

Observer = Callable[[Plan, dict[str, Any]], None]


def run(
    spec: Spec, substrate: Substrate, out: Path, observe: Observer, command: list[str], retries: int | None = None
) -> dict[str, Any]:
    """Run the experiment on ``substrate``; the summary, which is also written to its folder.

    ``observe`` is told of every event of every plan, ``{"event": "repeated"}`` where it begins anew, and
    ``{"event": "stored"}`` at its end. ``retries`` as in `execute`.
    """
    todo = plans(spec)
    folder = out / todo[0].experiment
    for plan in todo:
        folders.check(folder / plan.folder, out)
    rundir.sweep(folder)
    capacity: float | None = None
    for planned in todo:
        plan = scheduled(planned, spec, folder)
        observe(plan, {"event": "started"})
        # The unshaped path is measured once per experiment and kept with every run of it.
        verdict, capacity = execute(plan, spec, substrate, out, command, partial(observe, plan), capacity, retries)
        observe(plan, {"event": "stored", "verdict": verdict})
    wanted = [(plan.cc.label, plan.seed) for plan in todo if plan.alone is None]
    summary = summarise(load_experiment(folder, wanted))
    rundir.write_text(folder / "summary.json", json.dumps(summary, indent=1) + "\n", out)
    return summary


def scheduled(plan: Plan, spec: Spec, folder: Path) -> Plan:
    """``plan``; if a scheduler sets its clock, then by what was measured of its jobs alone, below the experiment's ``folder``.

    Raises `LoadError` if they have not been.
    """
    if not waits(plan):
        return plan
    profiles = {(plan.cc.spec, job.job): _profile(load_run(folder / alone_folder(plan, job.like))) for job in plan.jobs}
    again = next(one for one in plans(spec, profiles) if one.folder == plan.folder)
    return msgspec.structs.replace(again, measure_capacity=plan.measure_capacity)


def waits(plan: Plan) -> bool:
    """Whether it cannot be told before its jobs have been measured alone."""
    return plan.alone is None and any(job.grid for job in plan.jobs)


def _profile(run: Run) -> Profile:
    times = iteration_times(run.iterations)
    return Profile(alone(times), float(times.iloc[1:].std(ddof=0).fillna(0).iloc[0]))


def execute(
    plan: Plan, spec: Spec, substrate: Substrate, out: Path, command: list[str],
    on_event: Callable[[dict[str, Any]], None], capacity_bps: float | None = None, retries: int | None = None,
) -> tuple[str, float | None]:  # fmt: skip
    """Run ``plan`` and store it below ``out``; its verdict, and the capacity of the unshaped path.

    If it is invalid it is run again, at most ``retries`` times (`default_retries`): the last attempt is stored, with what
    came of those before it.
    """
    most = default_retries(substrate) if retries is None else retries
    attempts: list[dict[str, Any]] = []
    while True:
        begun = time.time()
        archive = substrate.run(
            plan, on_event, patience(plan, None if spec.wall_limit is None else spec.wall_limit / 1e9)
        )
        made = provenance(substrate, command, begun)
        one = _completed(plan, rundir.unpack(archive), made, capacity_bps)
        attempts.append({"started": made["started"], "wall_s": made["wall_s"], **one.outcome})
        if one.verdict["verdict"] != "invalid" or len(attempts) > most:
            break
        on_event({"event": "repeated", **one.outcome})
    rundir.store(one.files(attempts), out / plan.experiment / plan.folder, out)
    return one.verdict["verdict"], one.manifest["measured"]["capacity_bps"]


def default_retries(substrate: Substrate) -> int:
    """A real clock may have had a bad moment; under virtual time the same would come out."""
    return 0 if substrate.name == "uml" else 1


@dataclass(frozen=True)
class _Completed:
    """A run with provenance and verdict."""

    tables: dict[str, bytes]
    manifest: dict[str, Any]
    verdict: dict[str, Any]

    @property
    def outcome(self) -> dict[str, Any]:
        """Its verdict, and why if it is invalid."""
        rows = [row for row in self.verdict["invariants"] if row["status"] == "invalid"]
        return {
            "verdict": self.verdict["verdict"],
            "because": [f"{row['id']} {row['name']}: {row['value']:.4g}" for row in rows],
        }

    def files(self, attempts: list[dict[str, Any]]) -> dict[str, bytes]:
        """What its directory holds."""
        told = {"manifest.json": {**self.manifest, "attempts": attempts}, "verdict.json": self.verdict}
        return {**self.tables, **{name: (json.dumps(one, indent=1) + "\n").encode() for name, one in told.items()}}


def _completed(plan: Plan, files: dict[str, bytes], made: dict[str, Any], capacity_bps: float | None) -> _Completed:
    """A run's files, judged; ``capacity_bps`` is the unshaped path's if this run did not measure it."""
    manifest = json.loads(files.pop("manifest.json"))
    measured = manifest["measured"]
    measured["capacity_bps"] = measured["capacity_bps"] or capacity_bps
    manifest |= made
    manifest["plan"] = msgspec.to_builtins(plan)  # as asked for: inside, paths have other names
    manifest["topology_sha256"] = topology_sha256(plan)
    manifest["congestion_control_sha256"] = congestion_control_sha256(plan)
    manifest["digest"] = digest(files)
    read = {name: pd.read_csv(io.BytesIO(files[f"{name}.csv"])) for name in ("iterations", "links", "flows")}
    noted = None
    if disturbances.TABLE in files:
        manifest["disturbances"] = json.loads(files.pop(disturbances.ACCOUNT))
        noted = pd.read_csv(io.BytesIO(files[disturbances.TABLE]))
        files[disturbances.TOUCHED] = disturbed.listed(read["iterations"], noted).to_csv(index=False).encode()
    return _Completed(files, manifest, judge(Case(plan, manifest, **read, disturbances=noted)))


def topology_sha256(plan: Plan) -> str | None:
    """Of a topology from outside the checkout: its file may change."""
    return hashlib.sha256(Path(plan.topology).read_bytes()).hexdigest() if plan.topology.endswith(".py") else None


def congestion_control_sha256(plan: Plan) -> dict[str, str]:
    """Of congestion controls from outside the checkout, by their specs."""
    return {cc.spec: hashlib.sha256(Path(cc.source).read_bytes()).hexdigest() for cc in plan.ccs if cc.source}


def provenance(substrate: Substrate, command: list[str], begun: float) -> dict[str, Any]:
    """What made a run: program, packages, commit, command, time."""
    return {
        "testbed": __version__,
        "substrate": substrate.name,
        "uml": substrate.identity() if substrate.name == "uml" else None,
        "remote": substrate.identity() if substrate.name not in ("host", "uml") else None,
        "packages": {name: metadata.version(name) for name in PACKAGES},
        "git_commit": _commit(),
        "source_sha256": source_sha256(),
        "command": command,
        "started": datetime.fromtimestamp(begun, UTC).isoformat(timespec="seconds"),
        "wall_s": time.time() - begun,
    }


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
def _commit() -> str | None:
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

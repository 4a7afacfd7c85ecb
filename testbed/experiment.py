"""Run every plan of a spec on a substrate, store the run directories, sum them up."""

from __future__ import annotations

import hashlib
import io
import json
import subprocess
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime
from functools import cache, partial
from importlib import metadata
from pathlib import Path
from typing import Any

import msgspec
import pandas as pd

from analysis.load import Run, digest, load_experiment, load_run
from analysis.metrics import alone, iteration_times
from analysis.summary import summarise
from testbed import __version__, rundir
from testbed.environment import ROOT
from testbed.plan import Plan, alone_folder, plans
from testbed.scheduling import Profile
from testbed.spec import Spec
from testbed.substrates import Substrate
from testbed.verdict import judge
from workloads.units import Duration

PACKAGES = ("mininet", "pyroute2", "msgspec", "numpy", "pandas", "scipy", "matplotlib", "rich")

SLOWEST_PACKETS_PER_S = 20_000  # under virtual time

Observer = Callable[[Plan, dict[str, Any]], None]


def run(spec: Spec, substrate: Substrate, out: Path, observe: Observer, command: list[str]) -> dict[str, Any]:
    """Run the experiment on ``substrate``; the summary, which is also written to its folder.

    ``observe`` is told of every event of every plan, and ``{"event": "stored"}`` at its end.
    """
    todo = plans(spec)
    folder = out / todo[0].experiment
    rundir.sweep(folder)
    capacity: float | None = None
    for planned in todo:
        plan = scheduled(planned, spec, folder)
        observe(plan, {"event": "started"})
        # The unshaped path is measured once per experiment and kept with every run of it.
        where = folder / plan.folder
        verdict, capacity = execute(plan, spec, substrate, where, command, partial(observe, plan), capacity)
        observe(plan, {"event": "stored", "verdict": verdict})
    wanted = [(plan.cc.label, plan.seed) for plan in todo if plan.alone is None]
    summary = summarise(load_experiment(folder, wanted))
    rundir.write_text(folder / "summary.json", json.dumps(summary, indent=1) + "\n")
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
    plan: Plan, spec: Spec, substrate: Substrate, folder: Path, command: list[str],
    on_event: Callable[[dict[str, Any]], None], capacity_bps: float | None = None,
) -> tuple[str, float | None]:  # fmt: skip
    """Run ``plan`` and store it as ``folder``; its verdict, and the capacity of the unshaped path."""
    begun = time.time()
    archive = substrate.run(plan, on_event, wall_limit_s(spec.wall_limit, plan, substrate))
    more = {"capacity_bps": capacity_bps, **provenance(substrate, command, begun)}
    files, verdict, capacity_bps = _complete(plan, rundir.unpack(archive), more)
    rundir.store(files, folder)
    return verdict, capacity_bps


def _complete(plan: Plan, files: dict[str, bytes], more: dict[str, Any]) -> tuple[dict[str, bytes], str, float | None]:
    """A run's files with provenance and verdict; the verdict, and the capacity it was given on."""
    manifest = json.loads(files["manifest.json"])
    measured = manifest["measured"]
    measured["capacity_bps"] = measured["capacity_bps"] or more["capacity_bps"]
    manifest |= {key: value for key, value in more.items() if key != "capacity_bps"}
    manifest["plan"] = msgspec.to_builtins(plan)  # as asked for: inside, paths have other names
    manifest["topology_sha256"] = topology_sha256(plan)
    manifest["congestion_control_sha256"] = congestion_control_sha256(plan)
    manifest["digest"] = digest(files)
    tables = {name: pd.read_csv(io.BytesIO(files[f"{name}.csv"])) for name in ("iterations", "links")}
    verdict = judge(tables["iterations"], tables["links"], plan, manifest)
    for name, content in (("manifest.json", manifest), ("verdict.json", verdict)):
        files[name] = (json.dumps(content, indent=1) + "\n").encode()
    return files, verdict["verdict"], measured["capacity_bps"]


def topology_sha256(plan: Plan) -> str | None:
    """Of a topology from outside the checkout: its file may change."""
    return hashlib.sha256(Path(plan.topology).read_bytes()).hexdigest() if plan.topology.endswith(".py") else None


def congestion_control_sha256(plan: Plan) -> dict[str, str]:
    """Of congestion controls from outside the checkout, by their specs."""
    return {cc.spec: hashlib.sha256(Path(cc.source).read_bytes()).hexdigest() for cc in plan.ccs if cc.source}


def wall_limit_s(asked: Duration | None, plan: Plan, substrate: Substrate) -> float:
    """How long a run may take before something must be wrong: as asked, or ten times what it should."""
    if asked is not None:
        return asked / 1e9
    longest = plan.expected_s * len(plan.jobs) + max(job.leave_ns or 0 for job in plan.jobs) / 1e9
    if substrate.name != "uml":
        return 60 + 10 * longest
    payload = plan.iterations * sum(sum(job.bytes_per_worker) for job in plan.jobs)
    return 300 + longest + payload / plan.link.mtu / SLOWEST_PACKETS_PER_S


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
    for room in ("kernel", "schedulers", "testbed", "topologies", "workloads"):
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

"""Many experiments at once: ``python -m testbed sweep experiments/*.toml -j 2``.

What is not there yet is run, in a shuffled order (that only depends on what there is),
so that a drift of the machine is not taken for an effect; runs that a scheduler times
come after those of their jobs alone. A run is there if its manifest holds the very same
plan, run by the same testbed on the same kernel. A run that fails does not stop the
others and is listed at the end.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import random
import signal
import sys
import time
from collections.abc import Iterator
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn

from analysis.load import LoadError, load_experiment
from analysis.summary import summarise
from analysis.table import closing_table
from testbed import experiment, plan, rundir, substrates
from testbed.errors import EXIT_FAILED, EXIT_INVALID, EXIT_OK, RequestError, TestbedError
from testbed.plan import Plan
from testbed.spec import Spec
from testbed.substrates import Substrate
from testbed.substrates.host import end_with

SHUFFLE = "sweep"  # any order will do, but always the same


@dataclass(frozen=True)
class Task:
    """One run of one experiment, and where its results go."""

    spec: Spec
    plan: Plan
    folder: Path

    @property
    def title(self) -> str:
        return str(self.folder)


def tasks(specs: list[Spec], out: Path) -> list[Task]:
    """Every run of every experiment; raises `RequestError` if two would share a folder."""
    found: dict[Path, Task] = {}
    for spec in specs:
        for one in plan.plans(spec):
            # Every run measures the capacity it needs: which comes first is left to the shuffle.
            one = msgspec.structs.replace(one, measure_capacity=True)
            task = Task(spec, one, out / one.experiment / one.folder)
            if task.folder in found:
                raise RequestError(
                    f"{task.folder}: two experiments would be stored there; give them different names (name)."
                )
            found[task.folder] = task
    return list(found.values())


def describe(specs: list[Spec]) -> Iterator[str]:
    """What would be run, an experiment a line."""
    for spec in specs:
        runs = plan.plans(spec)
        yield f"{runs[0].experiment}: {len(runs)} runs of {len(runs[0].jobs)} jobs, {' '.join(spec.cc)}, on {spec.on}"


def run(specs: list[Spec], out: Path, parallel: int, *, quiet: bool) -> int:
    """Run what is missing, then sum up every experiment; an exit code."""
    if parallel < 1:
        raise RequestError(f"-j {parallel}: at least one run at a time")
    todo = tasks(specs, out)
    where = {spec.on: substrates.find(spec.on, [one.plan for one in todo if one.spec.on == spec.on]) for spec in specs}
    if parallel > 1 and any(substrate.name != "uml" for substrate in where.values()):
        raise RequestError(f"-j {parallel}: against a real clock runs would disturb each other; use --on uml, or -j 1.")
    rundir.sweep(out)
    at_once = [one for one in todo if not experiment.waits(one.plan) and not is_there(one, where[one.spec.on])]
    waiting = [one for one in todo if experiment.waits(one.plan)]
    console = Console(stderr=True)
    console.print(
        f"{len(todo)} runs of {len(specs)} experiments, {len(todo) - len(waiting) - len(at_once)} of them there"
        + (f"; {len(waiting)} wait for those of their jobs alone" if waiting else ""),
        highlight=False,
    )
    failures = _run_all(at_once, parallel, console, quiet=quiet)
    scheduled, unmeasured = _scheduled(waiting, out)
    late = [one for one in scheduled if not is_there(one, where[one.spec.on])]
    failures += unmeasured + _run_all(late, parallel, console, quiet=quiet)
    invalid = _sum_up(specs, todo, failures, out)
    for task, error in failures:
        print(f"failed: {task.title}: {error}", file=sys.stderr)
    if failures:
        print(f"{len(failures)} of {len(todo)} runs failed; the same command tries them again.", file=sys.stderr)
        return EXIT_FAILED
    return EXIT_INVALID if invalid else EXIT_OK


def is_there(task: Task, substrate: Substrate) -> bool:
    """Whether the results of this very run are there, complete (a folder always is) and of this testbed."""
    try:
        manifest = rundir.read_json(task.folder / "manifest.json")
    except (OSError, ValueError):
        return False
    now = experiment.provenance(substrate, [], 0.0)
    same = ("testbed", "substrate", "uml", "git_commit")
    return (
        manifest.get("plan") == json.loads(msgspec.json.encode(task.plan))
        and all(manifest.get(key) == now[key] for key in same)
        and manifest.get("topology_sha256") == experiment.topology_sha256(task.plan)
        and manifest.get("congestion_control_sha256") == experiment.congestion_control_sha256(task.plan)
    )


def _scheduled(waiting: list[Task], out: Path) -> tuple[list[Task], list[tuple[Task, str]]]:
    """The tasks as their jobs' runs alone have it; those for which these are missing."""
    able, failures = [], []
    for task in waiting:
        try:
            planned = experiment.scheduled(task.plan, task.spec, out / task.plan.experiment)
        except (LoadError, RequestError) as error:
            failures.append((task, str(error)))
        else:
            able.append(Task(task.spec, planned, task.folder))
    return able, failures


def _run_all(missing: list[Task], parallel: int, console: Console, *, quiet: bool) -> list[tuple[Task, str]]:
    if not missing:
        return []
    random.Random(SHUFFLE).shuffle(missing)
    failures: list[tuple[Task, str]] = []
    command = experiment.command_line()
    begun, weight = time.monotonic(), sum(one.plan.expected_s + 3 for one in missing)
    columns = (TextColumn("{task.completed}/{task.total} runs"), BarColumn(), TextColumn("{task.description}"))
    # Processes of their own, which end with this one whatever happens to it.
    pool = ProcessPoolExecutor(parallel, multiprocessing.get_context("spawn"), initializer=_begin)
    try:
        with Progress(*columns, console=console, transient=True, disable=quiet or not console.is_terminal) as progress:
            bar = progress.add_task("", total=len(missing))
            running: dict[Future[str], Task] = {pool.submit(_run_one, one, command): one for one in missing}
            done = 0.0
            for future in as_completed(running):
                task = running[future]
                try:
                    verdict = future.result()
                except TestbedError as error:
                    failures.append((task, str(error)))
                    verdict = "failed"
                done += task.plan.expected_s + 3
                left_s = (time.monotonic() - begun) * (weight - done) / done
                progress.update(bar, advance=1, description=f"about {left_s:.0f} s left")
                if not quiet:
                    progress.console.print(f"{task.title}: {verdict}", highlight=False, soft_wrap=True)
    except BaseException:
        pool.shutdown(wait=False, cancel_futures=True)
        for process in multiprocessing.active_children():
            process.terminate()
        raise
    pool.shutdown()
    return failures


def _begin() -> None:
    """In each process of the pool: end with the sweep, leaving nothing."""
    end_with(signal.SIGTERM)
    signal.signal(signal.SIGTERM, _end)


def _end(number: int, frame: Any) -> None:
    raise KeyboardInterrupt("the sweep was ended")


def _run_one(task: Task, command: list[str]) -> str:
    """Run and store one; its verdict."""
    try:
        substrate = substrates.find(task.spec.on, [task.plan])
        verdict, _ = experiment.execute(task.plan, task.spec, substrate, task.folder, command, partial(_ignore))
    except KeyboardInterrupt:
        os._exit(1)  # all is cleaned up by now; the pool would take this for a result and go on
    return verdict


def _ignore(event: dict[str, Any]) -> None:
    pass


def _sum_up(specs: list[Spec], todo: list[Task], failures: list[tuple[Task, str]], out: Path) -> bool:
    """Write every complete experiment's summary and print its table; whether any of them is invalid."""
    console = Console(width=None if sys.stdout.isatty() else 100)
    failed = {task.folder for task, _ in failures}
    invalid = False
    for spec in specs:
        own = [task for task in todo if task.spec is spec]
        if failed & {task.folder for task in own}:
            continue
        folder = out / own[0].plan.experiment
        wanted = [(task.plan.cc.label, task.plan.seed) for task in own if task.plan.alone is None]
        summary = summarise(load_experiment(folder, wanted))
        rundir.write_text(folder / "summary.json", json.dumps(summary, indent=1) + "\n")
        console.print(closing_table(summary))
        invalid |= summary["verdict"] == "invalid"
    return invalid

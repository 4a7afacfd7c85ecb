"""Many experiments at once: ``python -m testbed sweep experiments/*.toml -j 2``.

What is not there yet is run, in a shuffled order (that only depends on what there is),
so that a drift of the machine is not taken for an effect; runs that a scheduler times
come after those of their jobs alone. A run is there if its manifest holds the very same
plan, run by the same testbed on the same kernel. A run that fails does not stop the
others and is listed at the end.

Several other machines (``--on ssh:a --on ssh:b``) share the runs, one at a time each; the
runs of one that is lost go to the others.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import platform
import random
import signal
import sys
import time
import traceback
from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Any

import msgspec
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn

from core import folders, text
from core.errors import (
    EXIT_FAILED,
    EXIT_INVALID,
    EXIT_OK,
    LostError,
    RequestError,
    TestbedError,
    UnreachableError,
    VirtualTimeOnlyError,
    said_of,
)
from core.runs import rundir
from core.runs.load import LoadError, load_experiment, load_run
from core.runs.plan import Plan, alone_folder
from testbed import substrates
from testbed.campaign import experiment
from testbed.campaign.summary import summarise
from testbed.campaign.table import closing_table
from testbed.linux import privileges
from testbed.planning import plan
from testbed.spec import Spec, points
from testbed.spec import place as where
from testbed.substrates import Substrate, choice
from testbed.substrates.choice import Choice
from testbed.substrates.host import end_with

SHUFFLE = "sweep"  # any order will do, but always the same


@dataclass(frozen=True)
class Task:
    """One run of one experiment, and where its results go."""

    spec: Spec
    plan: Plan
    out: Path

    @property
    def folder(self) -> Path:
        return self.out / self.plan.experiment / self.plan.folder

    @property
    def title(self) -> str:
        return str(self.folder)


def tasks(specs: list[Spec], out: Path) -> list[Task]:
    """Every run of every experiment; raises `RequestError` if two would share a folder."""
    found: dict[Path, Task] = {}
    for spec in specs:
        with said_of(spec.name):
            planned = plan.plans(spec)
        for one in planned:
            # Every run measures the capacity it needs: which comes first is left to the shuffle.
            one = msgspec.structs.replace(one, measure_capacity=True)
            task = Task(spec, one, out)
            if task.folder in found:
                raise RequestError(
                    f"{task.folder}: two experiments would be stored there; give them different names (name)."
                )
            folders.check(task.folder, out)
            found[task.folder] = task
    return list(found.values())


def possible(files: list[str], flags: dict[str, Any]) -> Iterator[tuple[str, Choice]]:
    """Of several files those that can be had where they are to run, and where that is; the others are said to be left out."""
    for file in files:
        try:
            with said_of(file):
                yield file, choice.choose(partial(points.read, file), flags)
        except VirtualTimeOnlyError as error:
            if len(files) == 1:
                raise
            print(text.paragraph(f"left out: {error}"), file=sys.stderr)


def describe(chosen: Choice) -> Iterator[str]:
    """What would be run, an experiment a line, and where."""
    if chosen.reason is not None:
        yield f"{chosen}:"
    by_experiment = groupby(chosen.plans, lambda one: one.experiment)
    for spec, (_, planned) in zip(chosen.specs, by_experiment, strict=True):
        runs = list(planned)
        yield f"{runs[0].experiment}: {len(runs)} runs of {len(runs[0].jobs)} jobs, {' '.join(spec.cc)}, on {spec.on}"


def run(
    files: list[str], flags: dict[str, Any], out: Path, parallel: int, *, quiet: bool, retries: int | None = None
) -> int:
    """Run what is missing, then sum up every experiment; an exit code. ``retries``: see `experiment.execute`."""
    if parallel < 1:
        raise RequestError(f"-j {parallel}: at least one run at a time")
    specs, machines = _settled(files, flags, out)
    todo = tasks(specs, out)
    if parallel > 1 and any(place != "uml" for place in machines):
        raise RequestError(
            f"-j {parallel}: against a real clock runs on one machine would disturb each other; use --on uml, or -j 1, or "
            "several other machines (--on ssh:a --on ssh:b)."
        )
    rundir.sweep(out)
    at_once = [one for one in todo if not experiment.waits(one.plan) and not _is_done(one, machines)]
    waiting = [one for one in todo if experiment.waits(one.plan)]
    console = Console(stderr=True)
    console.print(
        f"{len(todo)} runs of {len(specs)} experiments, {len(todo) - len(waiting) - len(at_once)} of them there"
        + (f"; {len(waiting)} wait for those of their jobs alone" if waiting else ""),
        highlight=False,
    )
    failures = _run_all(at_once, _lanes(machines, parallel), console, quiet=quiet, retries=retries)
    scheduled, unmeasured = _scheduled(waiting, {task.folder for task, _ in failures}, out)
    late = [one for one in scheduled if not _is_done(one, machines)]
    failures += unmeasured + _run_all(late, _lanes(machines, parallel), console, quiet=quiet, retries=retries)
    invalid = _sum_up(specs, todo, failures, out)
    for task, error in failures:
        print(text.paragraph(f"failed: {task.title}: {error}"), file=sys.stderr)
    if failures:
        print(f"{len(failures)} of {len(todo)} runs failed; the same command tries them again.", file=sys.stderr)
        return EXIT_FAILED
    return EXIT_INVALID if invalid else EXIT_OK


def _settled(files: list[str], flags: dict[str, Any], out: Path) -> tuple[list[Spec], dict[str, Substrate]]:
    """Every experiment, and every place where some of them run."""
    _check_privileges(files, flags)
    chosen = list(possible(files, flags))
    rundir.check_writable(out)
    specs: list[Spec] = []
    machines: dict[str, Substrate] = {}
    for file, one in chosen:
        with said_of(file):
            if where.is_remote(one.place):
                for place in where.places(one.place):
                    machines[place] = substrates.find(place, one.plans)
            else:
                one, machines[one.place] = choice.settle(one, partial(points.read, file), flags)
        if one.reason is not None:
            print(f"{file}: {one}", file=sys.stderr)
        specs += one.specs
    return specs, machines


def _check_privileges(files: list[str], flags: dict[str, Any]) -> None:
    """Under ``sudo`` all runs give up root, or none; raises `RequestError` before anything is read as root."""
    if privileges.caller() is None:
        return
    places = {file: place for file in files if (place := choice.foreseen(partial(points.read, file), flags))}
    real = [file for file, one in places.items() if one.place != "uml"]
    if real and len(real) < len(places):
        raise RequestError(
            "under `sudo`, runs in user-mode Linux give up root, and others of this sweep keep it: "
            + ", ".join(real)
            + ". Sweep them apart, or name one place with --on."
        )


def is_there(task: Task, substrate: Substrate) -> bool:
    """Whether the results of this very run are there, complete (a folder always is) and of this testbed."""
    try:
        manifest = load_run(task.folder).manifest
    except LoadError:
        return False
    remote = manifest.get("remote")
    now = experiment.provenance(substrate, [], 0.0)
    same = ("testbed", "substrate", "uml", "source_sha256")
    return (
        manifest.get("plan") == json.loads(msgspec.json.encode(task.plan))
        and all(manifest.get(key) == now[key] for key in same)
        and (now["remote"] is None or (isinstance(remote, dict) and remote.get("kernel") == now["remote"]["kernel"]))
        and (now["substrate"] != "host" or platform.version() in str(manifest.get("kernel")))
        and manifest.get("topology_sha256") == experiment.topology_sha256(task.plan)
        and manifest.get("congestion_control_sha256") == experiment.congestion_control_sha256(task.plan)
    )


def _is_done(task: Task, machines: dict[str, Substrate]) -> bool:
    return any(is_there(task, machines[place]) for place in where.places(task.spec.on))


def _scheduled(waiting: list[Task], failed: set[Path], out: Path) -> tuple[list[Task], list[tuple[Task, str]]]:
    """The tasks as their jobs' runs alone have it; those for which these are missing."""
    able, failures = [], []
    for task in waiting:
        folder = out / task.plan.experiment
        if failed & {folder / alone_folder(task.plan, job.like) for job in task.plan.jobs}:
            failures.append((task, "needs runs of its jobs alone, and they failed"))
            continue
        try:
            planned = experiment.scheduled(task.plan, task.spec, folder)
        except (LoadError, RequestError) as error:
            failures.append((task, str(error)))
        else:
            able.append(Task(task.spec, planned, out))
    return able, failures


@dataclass(frozen=True)
class _Lane:
    """Does one run after the other: on this machine, or on the other one named by ``place``."""

    place: str | None
    # A process of its own, which ends with this one whatever happens to it.
    pool: ProcessPoolExecutor

    def takes(self, task: Task) -> bool:
        places = where.places(task.spec.on)
        return self.place in places if self.place is not None else not where.is_remote(places[0])


def _lanes(machines: dict[str, Substrate], parallel: int) -> list[_Lane]:
    others = [place for place in machines if where.is_remote(place)]
    here = [None] * (parallel if len(others) < len(machines) else 0)
    return [_lane(place) for place in [*here, *others]]


def _lane(place: str | None) -> _Lane:
    return _Lane(place, ProcessPoolExecutor(1, multiprocessing.get_context("spawn"), initializer=_begin))


def _run_all(
    missing: list[Task], lanes: list[_Lane], console: Console, *, quiet: bool, retries: int | None
) -> list[tuple[Task, str]]:
    random.Random(SHUFFLE).shuffle(missing)
    failures: list[tuple[Task, str]] = []
    command = experiment.command_line()
    begun, weight, done = time.monotonic(), sum(one.plan.expected_s + 3 for one in missing), 0.0
    columns = (TextColumn("{task.completed}/{task.total} runs"), BarColumn(), TextColumn("{task.description}"))
    used, idle, running = list(lanes), list(lanes), dict[Future[str], tuple[_Lane, Task]]()
    lost = "no machine is left"
    try:
        with Progress(*columns, console=console, transient=True, disable=quiet or not console.is_terminal) as progress:
            bar = progress.add_task("", total=len(missing))
            waiting = list(missing)
            while waiting or running:
                for lane in list(idle):
                    if (task := next((one for one in waiting if lane.takes(one)), None)) is not None:
                        waiting.remove(task)
                        idle.remove(lane)
                        running[lane.pool.submit(_run_one, task, lane.place or task.spec.on, command, retries)] = (
                            lane,
                            task,
                        )
                if not running:
                    failures += [(task, lost) for task in waiting]
                    break
                for future in wait(running, return_when=FIRST_COMPLETED).done:
                    lane, task = running.pop(future)
                    try:
                        verdict = future.result()
                    except (LostError, UnreachableError) as error:
                        lost = str(error)
                        given_up = text.paragraph(f"given up: {lost}")
                        console.print(given_up, highlight=False, markup=False, soft_wrap=True)
                        waiting.insert(0, task)
                        continue
                    except BrokenProcessPool:
                        failures.append((task, "its process was killed (out of memory?)"))
                        verdict, lane = "failed", _lane(lane.place)
                    except TestbedError as error:
                        failures.append((task, str(error)))
                        verdict = "failed"
                    except Exception as error:  # ours, and no reason to stop the others
                        failures.append((task, "".join(traceback.format_exception(error))))
                        verdict = "failed"
                    idle.append(lane)
                    if lane not in used:
                        used.append(lane)
                    done += task.plan.expected_s + 3
                    left_s = (time.monotonic() - begun) * (weight - done) / done
                    progress.update(bar, advance=1, description=f"about {left_s:.0f} s left")
                    if not quiet:
                        at = f" (on {lane.place})" if lane.place and len(lanes) > 1 else ""
                        line = text.plain(f"{task.title}: {verdict}{at}")
                        progress.console.print(line, highlight=False, markup=False, soft_wrap=True)
    except BaseException:
        for lane in used:
            lane.pool.shutdown(wait=False, cancel_futures=True)
        for process in multiprocessing.active_children():
            process.terminate()
        raise
    for lane in used:
        lane.pool.shutdown()
    return failures


def _begin() -> None:
    """In each process of the pool: end with the sweep, leaving nothing."""
    end_with(signal.SIGTERM)
    signal.signal(signal.SIGTERM, _end)


def _end(number: int, frame: Any) -> None:
    raise KeyboardInterrupt("the sweep was ended")


def _run_one(task: Task, place: str, command: list[str], retries: int | None) -> str:
    """Run and store one; its verdict."""
    try:
        substrate = substrates.find(place, [task.plan])
        verdict, _ = experiment.execute(
            task.plan, task.spec, substrate, task.out, command, partial(_ignore), retries=retries
        )
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
        rundir.write_text(folder / "summary.json", json.dumps(summary, indent=1) + "\n", out)
        console.print(closing_table(summary))
        invalid |= summary["verdict"] == "invalid"
    return invalid

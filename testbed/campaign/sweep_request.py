"""The experiments of several files: which of them can be had, where each runs, and in which order."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from testbed import backends
from testbed.backends import Backend, choice
from testbed.backends.choice import Choice
from testbed.campaign.driver import Wanted
from testbed.campaign.stored.folders import Work
from testbed.core.errors import RequestError, VirtualTimeOnlyError, within_unless_named
from testbed.core.runs import rundir
from testbed.linux import privileges
from testbed.spec import backend_names, sweep

SHUFFLE = "sweep"  # any order will do, but always the same
Tell = Callable[[str], None]


def possible(files: Sequence[str], given: dict[str, Any], tell: Tell) -> Iterator[tuple[str, Choice]]:
    """Yield files that can run on their backends, with the choice; ``tell`` is called for the others."""
    for file in files:
        try:
            with within_unless_named(file):
                yield file, choice.choose(partial(sweep.read, file), given)
        except VirtualTimeOnlyError as error:
            if len(files) == 1:
                raise
            tell(f"left out: {error}")


def check_privileges(files: Sequence[str], given: dict[str, Any]) -> None:
    """Raise `RequestError`, before files are read as root, if under ``sudo`` only some of the runs would drop root."""
    if privileges.caller() is None:
        return
    choices = {file: known for file in files if (known := choice.foreseen(partial(sweep.read, file), given))}
    real = [file for file, found in choices.items() if backend_names.in_real_time(found.backend)]
    if real and len(real) < len(choices):
        raise RequestError(
            "under `sudo`, runs in user-mode Linux drop root, but these files of the sweep need it: "
            + ", ".join(real)
            + ". Run them in a sweep of their own, or name one backend with --on."
        )


def resolve_backends(
    files: Sequence[str], given: dict[str, Any], out: Path, tell: Tell
) -> tuple[list[tuple[str, Choice]], dict[str, Backend]]:
    """Return every experiment with its backend, and all backends by name. Raises `RequestError`."""
    there = list(possible(files, given, tell))
    rundir.check_writable(out)
    found: list[tuple[str, Choice]] = []
    machines: dict[str, Backend] = {}
    for file, chosen in there:
        with within_unless_named(file):
            if backend_names.is_remote(chosen.backend):
                for name in backend_names.parse(chosen.backend):
                    machines[name] = backends.find(name, chosen.plans)
            else:
                chosen, machines[chosen.backend] = choice.settle(chosen, partial(sweep.read, file), given)
        if chosen.reason is not None:
            tell(f"{file}: {chosen}")
        found.append((file, chosen))
    return found, machines


def check_parallel(parallel: int, machines: Mapping[str, object]) -> None:
    """Raises `RequestError` unless so many runs at a time can be had on the backends ``machines``."""
    if parallel < 1:
        raise RequestError(f"-j {parallel}: not a number of concurrent runs. Give 1 or more.")
    if parallel > 1 and any(map(backend_names.in_real_time, machines)):
        raise RequestError(
            f"-j {parallel}: on a real clock, concurrent runs on one machine disturb each other. Use --on uml, or -j 1, "
            "or several other machines (--on ssh:a --on ssh:b)."
        )


def in_order(work: Work) -> tuple[list[Wanted], int]:
    """The runs to do, shuffled, those last that wait for others; and how many of all wait."""
    waiting = _each_measured([run for run in (*work.kept, *work.todo) if run.waits])
    missing = _each_measured([run for run in work.todo if not run.waits])
    shuffle = random.Random(SHUFFLE).shuffle
    shuffle(missing)
    shuffle(waiting)
    return [*missing, *waiting], len(waiting)


def _each_measured(runs: Sequence[Wanted]) -> list[Wanted]:
    """Every run measures the capacity it needs: which of an experiment comes first is left to the shuffle."""
    return [replace(run, plan=msgspec.structs.replace(run.plan, measure_capacity=True)) for run in runs]

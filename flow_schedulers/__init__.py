"""Who may send when, or with which weight: schedulers that MLTCP is compared with, one file each.

A scheduler knows every job and every link beforehand, which MLTCP does not. It is a module with

``OPTIONS``
    what may be written behind its name (``cassini:step=2,over=cubic``): for each option how its
    text is read (raising `ValueError`), and what it means;
``schedule(jobs, links, **options) -> Schedule``
    given what each job is and the capacity of each link in bit/s, what each job is told: a grid that
    its iterations begin on, a congestion control, or bands of priority. Raises `ScheduleError`
    where it cannot serve these jobs.

Adding one is adding a file.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

from core.grid import Grid
from core.text import quoted, shown

Option = tuple[Callable[[str], Any], str]


class ScheduleError(ValueError):
    """No such scheduler or option, or jobs it cannot serve; the message says what there is."""


@dataclass(frozen=True)
class Phase:
    """A span of one iteration in which a job wants ``bps`` of a link; in s after the iteration's start."""

    start_s: float
    end_s: float
    bps: float


@dataclass(frozen=True)
class Job:
    """What a scheduler is told of a job."""

    iteration_s: float | None  # alone; None: a real program, of which nobody knows
    demand: Mapping[str, tuple[Phase, ...]] | None  # on each link it crosses, alone; None: a hash chooses which
    bytes: int  # payload that the worker that sends most sends in one iteration
    spread_s: float = 0.0  # standard deviation of its iterations alone


@dataclass(frozen=True)
class Decision:
    """What a job is told."""

    cc: str  # the congestion control of its flows
    grid: Grid | None = None  # where its iterations begin; None: when they please
    bands: tuple[int, ...] = ()  # remaining bytes at which its packets move up a band; falling


@dataclass(frozen=True)
class Schedule:
    """One decision for each job, in their order, and what led to them."""

    decisions: tuple[Decision, ...]
    report: dict[str, Any] = field(default_factory=dict)  # plain values, for the manifest


@dataclass(frozen=True)
class Policy:
    """A scheduler with its options."""

    name: str
    options: dict[str, Any]

    def schedule(self, jobs: Sequence[Job], links: Mapping[str, float]) -> Schedule:
        """What each job is told; raises `ScheduleError`."""
        result: Schedule = find(self.name).schedule(jobs, links, **self.options)
        return result


def names() -> list[str]:
    """The schedulers there are."""
    return sorted(module.name for module in pkgutil.iter_modules([str(Path(__file__).parent)]))


def find(name: str) -> ModuleType:
    """The scheduler ``name``; raises `ScheduleError` naming those there are."""
    if name not in names():
        raise ScheduleError(f"there is no scheduler {quoted(name)}; there are {', '.join(names())}")
    return importlib.import_module(f"flow_schedulers.{name}")


def parse(text: str) -> Policy:
    """Read ``name`` or ``name:option=value,…``; raises `ScheduleError`."""
    name, _, rest = text.partition(":")
    known: dict[str, Option] = find(name).OPTIONS
    options: dict[str, Any] = {}
    for item in filter(None, rest.split(",")):
        key, equals, value = item.partition("=")
        if key not in known or not equals or key in options:
            meanings = ", ".join(f"{option} ({meaning})" for option, (_, meaning) in known.items())
            raise ScheduleError(f"{quoted(item)} in {quoted(text)} is no option of {name} (once each): {meanings}")
        try:
            options[key] = known[key][0](value)
        except (ValueError, ZeroDivisionError) as error:
            raise ScheduleError(f"{key} in {quoted(text)}: {error}") from error
    return Policy(name, options)


def number(low: float, high: float) -> Callable[[str], float]:
    """How a plain number between ``low`` and ``high`` is read."""

    def read(text: str) -> float:
        value = float(text)
        if not low <= value <= high:
            raise ValueError(f"{shown(text)} is not between {low:g} and {high:g}")
        return value

    return read

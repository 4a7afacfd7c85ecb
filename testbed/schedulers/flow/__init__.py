"""Flow schedulers, with which MLTCP is compared, one file each: how placed jobs share links in time.

A flow scheduler knows every job and every link in advance, which MLTCP does not. It is a module with

``Options``
    a frozen dataclass of the options behind its name (``cassini:step=2,over=cubic``), see `testbed.core.options`;
``share(jobs, links, options) -> Sharing``
    given the demand of each job and the capacity of each link in bit/s, a rule for each job: a grid of start times, a congestion
    control, priority queues, or exclusive links. Raises `ScheduleError` for jobs that it cannot schedule.
``KNOWS``, ``CENTRAL`` (optional)
    for figures: the information that it needs in advance, in a few words, and whether it decides for all jobs from it.

A new file adds a flow scheduler.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, cast

from testbed import registry
from testbed.core import options, system_text
from testbed.core.errors import RequestError
from testbed.core.grid import Grid
from testbed.core.phase import Phase


class ScheduleError(RequestError):
    """An unknown flow scheduler or option, or jobs that it cannot schedule; the message lists the valid ones."""


@dataclass(frozen=True)
class Demand:
    """A job as a flow scheduler receives it."""

    iteration_s: float | None  # in isolation; None: unknown, for a real program
    phases: (
        Mapping[str, tuple[Phase, ...]] | None
    )  # by link that it crosses, in isolation; None: a hash selects the links
    bytes: int  # payload that the worker that sends most sends in one iteration
    spread_s: float = 0.0  # standard deviation of its iterations in isolation
    iterations: int = 0  # number of iterations; 0: unknown
    tensor_bytes: int | None = None  # largest tensor between two workers; None: one exchange at a time

    @property
    def counted(self) -> int:
        """The maximum that bands count: bytes of a tensor where several messages are in flight, else of an iteration."""
        return self.bytes if self.tensor_bytes is None else self.tensor_bytes


@dataclass(frozen=True)
class Rule:
    """The settings that a job receives."""

    cc: str  # the congestion control of its flows
    grid: Grid | None = None  # slots in which its iterations begin; None: no slots
    bands: tuple[int, ...] = ()  # bytes left (in a window: of a tensor) at which its packets move up a band; falling
    falls: bool = False  # they move down instead, at so many bytes sent; rising
    exclusive: tuple[
        str, ...
    ] = ()  # links that it holds while it communicates, the job with the longest remaining time first; empty: it shares them


@dataclass(frozen=True)
class Sharing:
    """One rule for each job, in their order, and what led to them."""

    rules: tuple[Rule, ...]
    report: dict[str, Any] = field(default_factory=dict)  # plain values, for the manifest


class Module(Protocol):
    """The interface of a file in this folder."""

    @property
    def Options(self) -> type[Any]: ...

    def share(self, jobs: Sequence[Demand], links: Mapping[str, float], options: Any) -> Sharing: ...


@dataclass(frozen=True)
class FlowScheduler:
    """A flow scheduler with its options."""

    name: str
    options: Any  # the `Options` of its module

    def share(self, jobs: Sequence[Demand], links: Mapping[str, float]) -> Sharing:
        """The settings of each job; raises `ScheduleError`."""
        return find(self.name).share(jobs, links, self.options)


def names() -> list[str]:
    """The flow schedulers there are."""
    return list(registry.names(registry.FLOW_SCHEDULER))


def find(name: str) -> Module:
    """The flow scheduler ``name``; raises `registry.UnknownContentError`."""
    return cast(Module, registry.find(registry.FLOW_SCHEDULER, name))


def parse(text: str) -> FlowScheduler:
    """Read ``name`` or ``name:option=value,…``; raises `ScheduleError` or `OptionError`."""
    name = system_text.name_of(text)
    return FlowScheduler(name, options.parse(find(name).Options, text))

"""Importers, one file each: from what a profiler or a person wrote to a trace.

An importer is a module with

``TITLE``
    what it reads, for people;
``USES``
    which fields of `Request` mean something to it;
``recognises(head, path) -> bool``
    whether this may be its format; ``head`` is the first 64 KiB, unpacked;
``read(path, request) -> Profile``
    the training steps in one file; raises `TraceError` naming the file and the field.

Adding one is adding a file.
`steps.trace_of` then makes one iteration of many steps.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

from testbed import registry
from testbed.core.errors import within
from testbed.core.units import Duration, Rate, Size
from testbed.traces.json_stream import head
from testbed.traces.process_groups import Found, about_groups
from testbed.traces.steps import Step, trace_of, typical_s
from testbed.traces.trace import Kind, Source, Trace, TraceError

DEFAULT_RATE = Rate.parse("10gbit")


@dataclass(frozen=True)
class Request:
    """What a person says about a file because it does not."""

    group: str | None = None  # process group; None: the one with the most bytes
    sizes: tuple[Size, ...] = ()  # of a step's collectives, or one total
    ranks: int | None = None  # of its process group
    iteration: Duration | None = None  # how long a step takes (computing, where the file has no times)


_OPTIONS = {"group": "--group", "sizes": "--bytes", "ranks": "--ranks", "iteration": "--iteration"}


@dataclass(frozen=True)
class Profile:
    """What one file tells."""

    steps: list[Step]
    measured_by: str
    on: str = ""  # hardware
    assumptions: tuple[str, ...] = ()
    groups: tuple[Found, ...] = ()  # process groups of the file
    rank: int | None = None  # which one it is of
    world: int = 0  # how many ranks there are; 0: not known
    back_to_back: bool = False  # its steps take no time but for their exchanges


def names() -> list[str]:
    """The importers there are."""
    return list(registry.names(registry.IMPORTER))


@cache
def find(name: str) -> ModuleType:
    """The importer ``name``; raises `registry.UnknownContentError`."""
    return registry.find(registry.IMPORTER, name)


def detect(path: Path) -> str:
    """The format of the file ``path``, judged by its first bytes."""
    start = head(path)
    for name in names():
        if find(name).recognises(start, path):
            return name
    if is_of_jax(start):
        raise TraceError(
            f"{path} is a profile of JAX (XLA). It names no collective's size or process group, so it cannot be imported. Write a table of the "
            "exchanges of a step (CSV: time_ms,bytes), and import that."
        )
    known = "; ".join(f"{name}: {find(name).TITLE}" for name in names())
    raise TraceError(f"{path} is in no format that can be imported ({known}). --format NAME says which one it is.")


def is_of_jax(start: bytes) -> bool:
    """Whether this is what ``jax.profiler`` writes: trace.json.gz, or the protobuf beside it."""
    return (
        any(sign in start for sign in (b"PjitFunction", b"/host:CPU", b"XLA Ops", b"/device:TPU:"))
        and b"ProfilerStep" not in start
    )


@dataclass(frozen=True)
class Imported:
    """A trace, and what its files told besides."""

    trace: Trace
    groups: tuple[Found, ...]  # process groups of the files
    rank: int | None  # whose profile the first file is
    step_s: float  # how long a step took there, as a median


def import_trace(paths: list[Path], request: Request, **options: Any) -> Trace:
    """The trace alone that `import_files` makes."""
    return import_files(paths, request, **options).trace


def import_files(
    paths: list[Path],
    request: Request,
    *,
    name: str,
    model: str,
    native_rate: Rate | None = None,
    on: str = "",
    format: str | None = None,
    only: frozenset[Kind] | None = None,
) -> Imported:
    """One trace of the steps in all of ``paths`` (one file per rank); raises `TraceError`.

    ``only`` keeps the collectives of these kinds; the time of the others counts as computing.
    """
    profiles = [_profile(path, request, format or detect(path)) for path in paths]
    ranks = [profile.steps for profile in profiles]
    said = [text for profile in profiles for text in (*profile.assumptions, *about_groups(profile.groups))]
    if native_rate is None:
        native_rate = DEFAULT_RATE
        said.insert(0, f"native_rate is assumed to be {native_rate}: --native-rate was not given")
    if only is not None:
        ranks, left_out = _keep(ranks, only, paths)
        said += left_out
    source = Source(
        kind="derived from a measured trace",
        measured_by=profiles[0].measured_by,
        on=on or profiles[0].on,
    )
    with within(", ".join(map(str, paths))):
        trace = trace_of(
            ranks, name=name, model=model, source=source, native_rate=native_rate,
            assumptions=tuple(dict.fromkeys(said)),
            groups=tuple(dict.fromkeys(one.group for profile in profiles for one in profile.groups if one.chosen)),
            rank=profiles[0].rank, world=profiles[0].world,
        )  # fmt: skip
        return Imported(
            trace,
            tuple({one.group: one for profile in reversed(profiles) for one in profile.groups}.values()),
            profiles[0].rank,
            typical_s(ranks),
        )


def _profile(path: Path, request: Request, format: str) -> Profile:
    importer = find(format)
    for field, option in _OPTIONS.items():
        if getattr(request, field) and field not in importer.USES:
            raise TraceError(f"{path}: {option} means nothing for this format ({importer.TITLE})")
    profile: Profile = importer.read(path, request)
    for number, step in enumerate(profile.steps, 1):
        may_be_empty = profile.back_to_back or not step.exchanges
        if not (0 < step.duration_s * 1e9 <= Duration.limit or (may_be_empty and step.duration_s == 0)):
            raise TraceError(f"{path}: step {number} takes {step.duration_s:g} s, which no iteration does")
        for exchange in step.exchanges:
            if not 0 < exchange.bytes <= Size.limit:
                raise TraceError(
                    f"{path}: the {exchange.kind} of {exchange.bytes} bytes in step {number} is beyond reason"
                )
            if not 0 <= exchange.ready_s <= exchange.end_s <= step.duration_s * (1 + 1e-9):
                raise TraceError(
                    f"{path}: the {exchange.kind} at {exchange.ready_s:g} s to {exchange.end_s:g} s of step {number} does not lie "
                    f"within it ({step.duration_s:g} s)"
                )
    return profile


def _keep(ranks: list[list[Step]], kinds: frozenset[Kind], paths: list[Path]) -> tuple[list[list[Step]], list[str]]:
    """The steps with the exchanges of these kinds alone, and what that left out of the usual step."""
    steps = [step for own in ranks for step in own]
    if not any(one.kind in kinds for step in steps for one in step.exchanges):
        usual = Counter(tuple(one.kind for one in step.exchanges) for step in steps if step.exchanges).most_common(1)
        there = ", ".join(f"{n} {kind}" for kind, n in Counter(usual[0][0]).items()) if usual else "no collective"
        raise TraceError(
            f"{', '.join(map(str, paths))}: --only {','.join(sorted(kinds))} leaves nothing: a step has {there}"
        )
    lost = Counter(tuple((one.kind, one.bytes) for one in step.exchanges if one.kind not in kinds) for step in steps)
    usual_lost = lost.most_common(1)[0][0]
    said = [
        f"left out of each step: {len(sizes)} {kind} ({Size(sum(sizes))} in all)"
        for kind in sorted({kind for kind, _ in usual_lost})
        if (sizes := [size for other, size in usual_lost if other == kind])
    ]
    kept = [
        [replace(step, exchanges=tuple(one for one in step.exchanges if one.kind in kinds)) for step in own]
        for own in ranks
    ]
    return kept, said

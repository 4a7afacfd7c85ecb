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
``read_ranks(paths, request) -> list[Profile] | JobProfile``
    optional: all files at once, of one rank each, or of a whole job.

Adding one is adding a file.
`median_iteration.trace_of` makes one iteration of many steps. A `JobProfile` is one iteration of all ranks, used unchanged.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import msgspec

from testbed import registry
from testbed.core.errors import within
from testbed.core.text import quoted
from testbed.core.units import Duration, Rate, Size
from testbed.traces import job_lists
from testbed.traces.json_stream import brief, head
from testbed.traces.median_iteration import of_job, trace_of
from testbed.traces.process_groups import Found, Job, about_groups
from testbed.traces.rank_files import expanded, is_group_file
from testbed.traces.several_ranks import Ranked, Several, together
from testbed.traces.steps import Step, typical_s
from testbed.traces.trace import VERSION_2, Kind, Operation, Role, Source, Trace, TraceError

DEFAULT_RATE = Rate.parse("10gbit")
_MOST_NAMED = 8  # files or groups in a message


@dataclass(frozen=True)
class Request:
    """Values from the user that the file lacks."""

    group: str | None = None  # process group; None: the one with the most bytes
    sizes: tuple[Size, ...] = ()  # of a step's collectives, or one total
    ranks: int | None = None  # of its process group
    iteration: Duration | None = None  # how long a step takes (computing, where the file has no times)
    element_size: Size | None = None  # of what the file counts instead of bytes
    group_file: Path | None = None  # that lists process groups; None: the one next to the file
    steps: int | None = None  # how many the file holds, where it does not mark them


# How a field is given.
OPTIONS = {
    "group": "--group",
    "sizes": "--bytes",
    "ranks": "--ranks",
    "iteration": "--iteration",
    "element_size": "--element-size",
    "group_file": "--group-file",
    "steps": "--steps",
}


@dataclass(frozen=True)
class Profile:
    """The content of one file."""

    steps: list[Step]
    measured_by: str
    on: str = ""  # hardware
    assumptions: tuple[str, ...] = ()
    groups: tuple[Found, ...] = ()  # process groups of the file
    rank: int | None = None  # which one it is of
    world: int = 0  # how many ranks there are; 0: not known
    timed: bool = True  # False: how long its steps take was given by hand, or follows from its dependencies
    back_to_back: bool = False  # its steps take no time but for their exchanges


@dataclass(frozen=True)
class JobProfile:
    """One iteration of all ranks of a job, as its files have it: nothing is pooled, and no times need be recorded."""

    job: Job
    measured_by: str
    groups: tuple[Found, ...] = ()
    rank: int | None = None  # ranks with the operations of the table; None: those of the first role
    assumptions: tuple[str, ...] = ()
    on: str = ""  # hardware
    step_s: float = 0.0  # how long an iteration took, if that was recorded


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
            f"{path} is a profile of JAX (XLA). It names no collective's size or process group, so it cannot be imported. Write table.csv with "
            "the header time_ms,bytes and a row for each exchange of a step: the time since the step began, and the bytes. The last row has 0 bytes, at "
            "the end of the step, such as 222.4,0. Then run `mltcp import table.csv -o mine.json`."
        )
    if b'"version"' in start and (b'"operations"' in start or b'"roles"' in start):
        raise TraceError(
            f"{path} is a trace already. Replay it with --trace {path}, or draw it with `mltcp show {path}`."
        )
    if any(one.recognises(start.decode(errors="replace"), path) for one in job_lists.formats()):
        raise TraceError(f"{path} is a list of jobs. `mltcp schedule {path}` reads it.")
    if path.name.lower().endswith((".csv", ".csv.gz")):
        columns = start.partition(b"\n")[0].decode(errors="replace").strip()
        raise TraceError(
            f"{path}: the columns are {brief(columns)}. A table of exchanges needs bytes and one of time_s, time_ms, time_us."
        )
    raise TraceError(f"{path} has an unknown format. Give --format NAME: {', '.join(names())}, or ./mine.py.")


def is_of_jax(start: bytes) -> bool:
    """Whether this is output of ``jax.profiler``: trace.json.gz, or the protobuf next to it."""
    return (
        any(sign in start for sign in (b"PjitFunction", b"/host:CPU", b"XLA Ops", b"/device:TPU:"))
        and b"ProfilerStep" not in start
    )


@dataclass(frozen=True)
class Imported:
    """A trace, and further information from its files."""

    trace: Trace
    groups: tuple[Found, ...]  # process groups of the files
    rank: int | None  # rank of the first file
    step_s: float  # median duration of a step there; 0: unknown


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
    paths = expanded(paths)
    if request.group_file is None and len(paths) > 1 and (lists := [path for path in paths if is_group_file(path)]):
        request = replace(request, group_file=lists[0])
        paths = [path for path in paths if path not in lists[:1]]
    profiles = _read(paths, request, format)
    if isinstance(profiles, JobProfile):
        with within(", ".join(map(str, paths[:_MOST_NAMED]))):
            return _imported(profiles, request.group, name, model, native_rate, on, only)
    ranks = [profile.steps for profile in profiles]
    said = [text for profile in profiles for text in (*profile.assumptions, *about_groups(profile.groups))]
    if only is not None:
        ranks, left_out = _keep(ranks, only, paths)
        said += left_out
    source = Source(
        kind="derived from a measured trace",
        measured_by=profiles[0].measured_by,
        on=on or profiles[0].on,
    )
    with within(", ".join(map(str, paths))):
        whole: dict[str, Any] = {
            "name": name, "model": model, "source": source, "native_rate": native_rate,
        }  # fmt: skip
        several = _several(profiles, ranks)
        if several is not None:
            trace = of_job(
                several.job,
                several.iterations,
                workers=several.workers,
                assumptions=tuple(dict.fromkeys(said)),
                **whole,
            )
        else:
            trace = trace_of(
                ranks,
                assumptions=tuple(dict.fromkeys(said)),
                groups=tuple(dict.fromkeys(one.group for profile in profiles for one in profile.groups if one.chosen)),
                rank=profiles[0].rank,
                world=profiles[0].world,
                **whole,
            )
        if trace.native_rate is None:
            assumed = f"native_rate is assumed to be {DEFAULT_RATE}: --native-rate was not given"
            trace = msgspec.structs.replace(trace, native_rate=DEFAULT_RATE, assumptions=(assumed, *trace.assumptions))
        return Imported(
            trace,
            tuple({one.group: one for profile in reversed(profiles) for one in profile.groups}.values()),
            profiles[0].rank,
            0.0
            if not all(profile.timed for profile in profiles)
            else typical_s(ranks)
            if several is None
            else several.step_s,
        )


def _read(paths: Sequence[Path], request: Request, format: str | None) -> list[Profile] | JobProfile:
    """The content of the files: training steps of each, or a whole job."""
    formats = [format or detect(path) for path in paths]
    importers = [find(name) for name in formats]
    for path, importer in zip(paths, importers, strict=True):
        for field, option in OPTIONS.items():
            if getattr(request, field) and field not in importer.USES:
                raise TraceError(f"{path}: {option} has no effect for this format ({importer.TITLE})")
    if len(set(formats)) == 1 and hasattr(importers[0], "read_ranks"):
        told: list[Profile] | JobProfile = importers[0].read_ranks(list(paths), request)
        if isinstance(told, JobProfile):
            return told
        profiles = told
    else:
        profiles = [importer.read(path, request) for path, importer in zip(paths, importers, strict=True)]
    for path, profile in zip(paths, profiles, strict=True):
        _check_steps(path, profile)
    return profiles


def _several(profiles: list[Profile], ranks: list[list[Step]]) -> Several | None:
    """The job by the profiles of several ranks; None if they are indistinguishable, or do the same in one group."""
    found = [
        Ranked(profile.rank, steps, [one.group for one in profile.groups if one.chosen], profile.world)
        for profile, steps in zip(profiles, ranks, strict=True)
        if profile.rank is not None
    ]
    return together(found) if len(found) == len(profiles) else None


def _check_steps(path: Path, profile: Profile) -> None:
    for number, step in enumerate(profile.steps, 1):
        may_be_empty = profile.back_to_back or not step.exchanges
        if not (0 < step.duration_s * 1e9 <= Duration.limit or (may_be_empty and step.duration_s == 0)):
            raise TraceError(
                f"{path}: step {number} takes {step.duration_s:g} s, which is implausible for an iteration. Check the file"
            )
        for exchange in step.exchanges:
            if not 0 < exchange.bytes <= Size.limit:
                raise TraceError(
                    f"{path}: the {exchange.kind} of {exchange.bytes} bytes in step {number} is implausible. Check the file"
                )
            if not 0 <= exchange.ready_s <= exchange.end_s <= step.duration_s * (1 + 1e-9):
                raise TraceError(
                    f"{path}: the {exchange.kind} at {exchange.ready_s:g} s to {exchange.end_s:g} s of step {number} does not lie "
                    f"within it ({step.duration_s:g} s)"
                )


def _imported(
    profile: JobProfile,
    group: str | None,
    name: str,
    model: str,
    native_rate: Rate | None,
    on: str,
    only: frozenset[Kind] | None,
) -> Imported:
    """The trace of a whole job, perhaps without some of its exchanges."""
    job = profile.job
    roles = job.roles or (Role("", (), job.operations),)
    chosen = _chosen_groups(profile.groups, group)
    left = Counter[str]()
    kept = []
    for role in roles:
        dropped = {
            op.id
            for op in role.operations
            if not op.computes
            and (
                (only is not None and op.kind not in only)
                or (group is not None and not _is_in(op, chosen, list(job.groups)))
            )
        }
        left.update(op.kind for op in role.operations if op.id in dropped)
        kept.append(msgspec.structs.replace(role, operations=tuple(_without(role.operations, dropped))))
    operations = [op for role in kept for op in role.operations]
    if all(op.computes for op in operations):
        there = ", ".join(f"{n} {kind}" for kind, n in left.items()) or "no exchange"
        asked = [f"--only {','.join(sorted(only))}"] if only is not None else []
        asked += [f"--group {quoted(group)}"] if group is not None else []
        raise TraceError(
            f"{' and '.join(asked)} leaves nothing: an iteration has {there}" if asked else "it exchanges nothing"
        )
    said = [f"left out of each iteration: {count} {kind}" for kind, count in left.items()]
    trace = Trace(
        version=VERSION_2 if job.groups or job.roles or any(op.by_work for op in operations) else job.version,
        name=name,
        model=model,
        source=Source(kind="synthetic", measured_by=profile.measured_by, on=on or profile.on),
        operations=() if job.roles else kept[0].operations,
        roles=tuple(kept) if job.roles else (),
        groups=job.groups,
        placement=job.placement,
        native_rate=native_rate,
        assumptions=tuple(dict.fromkeys((*profile.assumptions, *job.said, *said))),
    )
    groups = tuple(replace(one, chosen=one.chosen and one.group.name in chosen) for one in profile.groups)
    return Imported(trace, groups, profile.rank, profile.step_s)


def _is_in(op: Operation, chosen: Collection[str], groups: Sequence[str]) -> bool:
    """Whether an exchange is of a chosen group; without a name it is of the only one."""
    if op.group is None and not op.point_to_point:
        return not groups or groups[0] in chosen
    return op.group in chosen


def _chosen_groups(groups: Sequence[Found], wanted: str | None) -> set[str]:
    chosen = {one.group.name for one in groups if wanted is None or one.group.called(wanted)}
    if wanted is not None and not chosen:
        there = ", ".join(quoted(one.group.name) for one in groups[:_MOST_NAMED]) or "none"
        raise TraceError(f"there is no process group {quoted(wanted)}. The files have {there}")
    return chosen


def _without(operations: Sequence[Operation], dropped: Collection[str]) -> Iterator[Operation]:
    """The other operations; what waited for one that is dropped waits for what that one waited for."""
    waited: dict[str, tuple[str, ...]] = {}
    for op in operations:
        after = tuple(dict.fromkeys(one for name in op.after for one in waited.get(name, (name,))))
        if op.id in dropped:
            waited[op.id] = after
        else:
            yield msgspec.structs.replace(op, after=after) if dropped else op


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

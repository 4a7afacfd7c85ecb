"""Lists of jobs to schedule: the testbed's tables, and job logs of clusters; one format a file.

A format is a module with

``TITLE``
    its name, in a few words;
``recognises(head, path) -> bool``
    from the first kilobytes, as text;
``read(text, path, omitted) -> list[Logged] | list[Request | Replayed]``
    raises `RequestError` for a text that is no such list. A log's invalid row goes to ``omitted`` with its reason; other rows are kept.

A `Logged` job has an arrival time, a number of GPUs, and a duration; logs lack computing times and messages. Iterations
and gradient are then sampled from the library of traces by the seed (`filled`), and the output reports it. Bytes are
those of the traces at any rate, unless ``--keep-duty`` scales them. Each format names its time zone, so a log's times
do not depend on that of this machine.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol, cast

from testbed import registry
from testbed.core.errors import RequestError, within
from testbed.core.input_files import read_text
from testbed.core.placing import Request
from testbed.core.text import decimal, shown
from testbed.core.units import Rate
from testbed.traces import trace
from testbed.traces.rows import Omission, Omissions, RowError
from testbed.traces.wire_bytes import usual_bytes

MOST_BYTES = 500 * 10**6
HEAD = 4096
MODELS = ("resnet50", "vgg16", "vgg19", "bert-base", "gpt2")  # data parallel, one gradient an iteration


@dataclass(frozen=True, slots=True)
class Logged:
    """A job as a cluster's log has it; times in seconds."""

    arrival_s: float
    gpus: int
    took_s: float


@dataclass(frozen=True, slots=True)
class Replayed:
    """A job that replays a trace, with the trace's own bytes."""

    request: Request
    trace: str  # its name
    native_rate: Rate | None


@dataclass(frozen=True)
class JobList:
    """Jobs to schedule; ``synthetic``: what of them was sampled, in words."""

    requests: tuple[Request, ...]
    synthetic: str = ""
    omitted: tuple[Omission, ...] = ()  # rows of a log that are left out, by reason
    assumed: tuple[str, ...] = ()  # values that the list lacks, with their assumptions

    def fitting(self, gpus: int) -> JobList:
        """Return this list for a cluster of ``gpus`` GPUs, without larger jobs of a log.

        Raises `RequestError` if a table has a larger job, or if no job is left.
        """
        large = [one for one in self.requests if one.gpus > gpus]
        if not large:
            return self
        if not self.synthetic or len(large) == len(self.requests):
            raise RequestError(
                f"gpus: job {large[0].job} asks for {large[0].gpus} GPUs, but the cluster has {gpus}. "
                "Use more --servers or larger --gpus, or give the job fewer GPUs."
            )
        why = Omission(
            f"it asks for more than the cluster's {gpus} GPUs", len(large), f"job {large[0].job}: {large[0].gpus} GPUs"
        )
        kept = tuple(one for one in self.requests if one.gpus <= gpus)
        return replace(self, requests=kept, omitted=(*self.omitted, why))


class Format(Protocol):
    """The interface of a file in this folder."""

    TITLE: str

    def recognises(self, head: str, path: Path) -> bool: ...

    def read(self, text: str, path: Path, omitted: Omissions) -> list[Logged] | list[Request | Replayed]: ...


def formats() -> list[Format]:
    """The available formats, by name."""
    kind = registry.JOB_LIST
    return [cast(Format, registry.find(kind, name)) for name in (*registry.names(kind), *registry.installed(kind))]


def read(path: Path, rate_bps: int, seed: int, format: str | None = None, *, keep_duty: bool = False) -> JobList:
    """The jobs of a file, numbered as they come; raises `RequestError`. ``format``: a name, or a file of the user.

    ``keep_duty``: bytes of traces are multiplied by ``rate_bps`` ÷ the native rate.
    """
    text = read_text(path, MOST_BYTES)
    if format is not None:
        chosen: Format | None = cast(Format, registry.find(registry.JOB_LIST, format))
    else:
        chosen = next((one for one in formats() if one.recognises(text[:HEAD], path)), None)
    if chosen is None:
        raise RequestError(
            f"{shown(path, 200)} is not a known kind of job list: {'; '.join(one.TITLE for one in formats())}. Give a CSV "
            "file with the columns job,gpus,iterations,gradient_bytes,compute_s,arrival_s."
        )
    omitted = Omissions()
    with within(shown(path, 200)):
        found = chosen.read(text, path, omitted)
        if not found:
            first = "".join(
                f" The most frequent reason: {one.reason} ({one.rows} rows; {one.first})."
                for one in omitted.by_reason()[:1]
            )
            raise RequestError(f"no row of it is a job to schedule; {omitted.rows} rows are left out.{first}")
    rate, jobs = Rate(rate_bps), [one for one in found if isinstance(one, Logged)]
    listed = filled(jobs, seed) if jobs else [one for one in found if not isinstance(one, Logged)]
    requests = tuple(_at_rate(one, rate, keep_duty=keep_duty) for one in listed)
    if jobs:
        return JobList(requests, _drawn(keep_duty=keep_duty), omitted.by_reason(), tuple(omitted.assumed))
    for one in listed:
        if isinstance(one, Replayed) and (note := _note(one, rate, keep_duty=keep_duty)):
            omitted.assume(note)
    return JobList(requests, assumed=tuple(omitted.assumed))


def _drawn(*, keep_duty: bool) -> str:
    """The sampled properties of a log's jobs, and the origin of their bytes."""
    native: dict[Rate | None, list[str]] = {}
    for name in MODELS:
        native.setdefault(trace.load(name).native_rate, []).append(name)
    rates = " and ".join(f"{rate} ({', '.join(names)})" for rate, names in native.items())
    bytes_ = "scaled by rate ÷ native rate" if keep_duty else "those at native rates (--keep-duty scales them)"
    return f"iterations, gradient and computing drawn from {', '.join(MODELS)}; bytes are {bytes_}: {rates}"


def _at_rate(one: Request | Replayed, rate: Rate, *, keep_duty: bool) -> Request:
    if isinstance(one, Request):
        return one
    if not keep_duty or one.native_rate is None:
        return one.request
    return replace(one.request, gradient_bytes=round(one.request.gradient_bytes * rate / one.native_rate))


def _note(one: Replayed, rate: Rate, *, keep_duty: bool) -> str | None:
    """The assumption on the bytes of a trace that a table names."""
    request, native = one.request, one.native_rate
    if native is None:
        return (
            f"bytes of {one.trace} are not scaled: it has no native rate, which --keep-duty needs"
            if keep_duty
            else None
        )
    factor = f"{decimal(rate / native, 4)} ({rate} ÷ its native rate, {native})"
    if keep_duty:
        return f"bytes of {one.trace} are scaled by {factor}: --keep-duty"
    if (
        native <= rate
        or usual_bytes("all_reduce", request.gradient_bytes, request.gpus) * 8 / rate <= request.compute_s
    ):
        return None
    return (
        f"{one.trace} communicates among servers for longer than it computes. Its bytes are not scaled; "
        f"--keep-duty would scale them by {factor}"
    )


def logged(entries: Iterable[tuple[str, Any]], job: Callable[[Any], Logged], omitted: Omissions) -> list[Logged]:
    """Return the ``entries`` that ``job`` can read; add the others to ``omitted``."""
    found = []
    for where, entry in entries:
        try:
            if isinstance(entry, RowError):
                raise entry
            found.append(job(entry))
        except RowError as error:
            omitted.add(where, error)
    return found


def filled(logged: Sequence[Logged], seed: int) -> list[Replayed]:
    """Jobs with the iterations and the gradient of a sampled model; the first arrives at 0.

    Iterations are as many as computing alone fits into the time that the job took, one at least.
    """
    draw = random.Random(f"joblist {seed}")
    models = [trace.load(name) for name in MODELS]
    first = min(one.arrival_s for one in logged)
    requests = []
    for number, job in enumerate(sorted(logged, key=lambda job: job.arrival_s)):
        model = draw.choice(models)
        iterations = max(1, round(job.took_s / model.compute_s))
        arrival_s = job.arrival_s - first
        request = Request(number, job.gpus, iterations, model.bytes_per_iteration, model.compute_s, arrival_s)
        requests.append(Replayed(request, model.name, model.native_rate))
    return requests


def poisson(requests: Sequence[Request], gpus: int, load: float, seed: int) -> list[Request]:
    """Return the same jobs with Poisson arrivals, such that their computing uses the fraction ``load`` of ``gpus``
    GPUs."""
    draw = random.Random(f"arrivals {seed}")
    work = sum(one.gpus * one.iterations * one.compute_s for one in requests) / len(requests)
    if not work:
        raise RequestError("load: these jobs do not compute, so no arrival rate gives this load. Leave --load out")
    now, found = 0.0, []
    for one in requests:
        found.append(replace(one, arrival_s=now))
        now += draw.expovariate(load * gpus / work)
    return found

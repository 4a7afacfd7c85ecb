"""Lists of jobs to schedule: own tables, and the job logs of three clusters; one format a file.

A format is a module with

``TITLE``
    what it is, in a few words;
``recognises(head, path) -> bool``
    from the first kilobytes, as text;
``read(text, path) -> list[Logged] | list[Request]``
    raises `RequestError`.

A `Logged` job says when it came, on how many GPUs, and how long it took; logs do not tell what it computed and sent. Iterations
and gradient are then drawn from the library of traces by the seed (`filled`), and whoever prints them says so.
"""

from __future__ import annotations

import importlib
import pkgutil
import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol, cast

from core.errors import RequestError, within
from core.placing import Request
from core.reading import read_text
from core.text import shown
from workloads import trace

MOST_BYTES = 500 * 10**6
HEAD = 4096
MODELS = ("resnet50", "vgg16", "vgg19", "bert-base", "gpt2")  # data parallel, one gradient an iteration


@dataclass(frozen=True)
class Logged:
    """A job as a cluster's log tells it; times in seconds."""

    arrives_s: float
    gpus: int
    took_s: float


@dataclass(frozen=True)
class JobList:
    """Jobs to schedule; ``synthetic``: what of them was drawn, in words."""

    requests: tuple[Request, ...]
    synthetic: str = ""


class Format(Protocol):
    """What a file of this folder has."""

    TITLE: str

    def recognises(self, head: str, path: Path) -> bool: ...

    def read(self, text: str, path: Path) -> list[Logged] | list[Request]: ...


def formats() -> list[Format]:
    """Those there are, by name."""
    found = sorted(module.name for module in pkgutil.iter_modules(__path__))
    return [cast(Format, importlib.import_module(f"{__name__}.{name}")) for name in found]


def read(path: Path, rate_bps: int, seed: int) -> JobList:
    """The jobs of a file, numbered as they come; raises `RequestError`."""
    text = read_text(path, MOST_BYTES)
    chosen = next((one for one in formats() if one.recognises(text[:HEAD], path)), None)
    if chosen is None:
        raise RequestError(
            f"{shown(path, 200)} is no list of jobs that is known here: {'; '.join(one.TITLE for one in formats())}. Give a CSV "
            "file with the columns job,gpus,iterations,gradient_bytes,compute_s,arrives_s."
        )
    with within(shown(path, 200)):
        found = chosen.read(text, path)
        if not found:
            raise RequestError("there is no job in it (jobs without a GPU, or that never ran, do not count)")
    logged = [one for one in found if isinstance(one, Logged)]
    if not logged:
        return JobList(tuple(one for one in found if isinstance(one, Request)))
    return JobList(
        tuple(filled(logged, rate_bps, seed)), f"iterations, gradient and computing drawn from {', '.join(MODELS)}"
    )


def filled(logged: Sequence[Logged], rate_bps: int, seed: int) -> list[Request]:
    """Jobs with the iterations and the gradient of a model that is drawn; the first arrives at 0.

    Iterations are as many as computing alone fits into the time that the job took, one at least.
    """
    draw = random.Random(f"joblist {seed}")
    models = [trace.load(name).scaled(rate_bps) for name in MODELS]
    first = min(one.arrives_s for one in logged)
    requests = []
    for number, job in enumerate(sorted(logged, key=lambda job: job.arrives_s)):
        model = draw.choice(models)
        iterations = max(1, round(job.took_s / model.compute_s))
        arrives_s = job.arrives_s - first
        requests.append(Request(number, job.gpus, iterations, model.bytes_per_iteration, model.compute_s, arrives_s))
    return requests


def poisson(requests: Sequence[Request], gpus: int, load: float, seed: int) -> list[Request]:
    """The same jobs, arriving at random so that their computing asks for ``load`` of so many GPUs."""
    draw = random.Random(f"arrivals {seed}")
    work = sum(one.gpus * one.iterations * one.compute_s for one in requests) / len(requests)
    if not work:
        raise RequestError("load: these jobs compute nothing, so that no rate of arrivals makes a load")
    now, found = 0.0, []
    for one in requests:
        found.append(replace(one, arrives_s=now))
        now += draw.expovariate(load * gpus / work)
    return found

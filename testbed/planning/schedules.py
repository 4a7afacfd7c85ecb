"""Computed and measured schedules: the decisions of a job scheduler, played by a cluster's event loop without
emulation."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace

from testbed.core.errors import RequestError
from testbed.core.placing import Gpu, Metrics, Request
from testbed.core.runs.schedules import Asked, Jobs, Setting
from testbed.models.cluster import Ran, Servers, follow, simulate
from testbed.models.contention import Contended, Model, linear
from testbed.models.measures import measure
from testbed.planning import few_jobs, published_mix
from testbed.schedulers import job as job_schedulers
from testbed.schedulers import online
from testbed.schedulers.job import Cluster
from testbed.spec.schedules import TRIALS, with_options
from testbed.traces import job_lists

Row = dict[str, str | int | float]  # of `testbed.core.runs.schedules.TABLE`, by column


@dataclass(frozen=True)
class Carried:
    """The result of a scheduler."""

    metrics: Metrics
    trials: int
    ran: tuple[Ran, ...]


def carry_out(scheduler: str, requests: Sequence[Request], gpus: tuple[Gpu, ...], model: Model, seed: int) -> Carried:
    """A schedule by ``scheduler`` (name and options) under equation 8; raises `RequestError`."""
    module, chosen = job_schedulers.parse(scheduler)
    cluster = Cluster({"s1": gpus}, lambda _job: ["s1"])
    assigned = online.schedule(module, requests, cluster, model, chosen, seed=seed)
    servers = Servers(gpus)
    given, policy = follow(assigned, requests, servers)
    ran = simulate(given, servers, policy, Contended(model, len(servers.sizes)), slot_s=model.slot_s)
    if ran is None:
        raise RequestError(
            "some jobs never get free GPUs under this scheduler, which is for jobs that start together. Name another scheduler"
        )
    # For the event loop, a job with a fixed start (`At`) arrives then; metrics count from its actual arrival.
    ran = tuple(replace(job, request=request) for job, request in zip(ran, requests, strict=True))
    return Carried(measure(ran, servers, model.iteration_s), assigned.trials, ran)


@dataclass(frozen=True)
class Cell:
    """One cluster and one list of jobs, given to every scheduler of an experiment."""

    setting: Setting
    servers: int
    seed: int
    schedulers: tuple[str, ...]
    alpha: float
    jobs: Jobs


def cells(asked: Asked) -> list[Cell]:
    """The parts of an experiment; each can be computed separately."""
    return [
        Cell(setting, servers, seed, asked.scheduler, asked.alpha, asked.jobs)
        for seed, setting, servers in itertools.product(range(1, asked.seeds + 1), asked.setting, asked.servers)
    ]


def rows(cell: Cell) -> list[Row]:
    """A row for each scheduler; raises `RequestError`."""
    return list(_rows(cell))


def _rows(cell: Cell) -> Iterator[Row]:
    (requests, gpus), model = _drawn(cell), _model(cell)
    budget = 1
    for number, scheduler in enumerate(cell.schedulers):
        named = with_options(scheduler.replace(TRIALS, str(budget)), cell.setting.options)
        found = carry_out(named, requests, gpus, model, cell.seed)
        budget = budget if number else found.trials
        numbers = asdict(found.metrics)
        idle = {f"idle_{cause}_gpu_h": hours for cause, hours in numbers.pop("idle_gpu_h").items()}
        yield {
            "setting": cell.setting.name, "servers": cell.servers, "seed": cell.seed, "scheduler": scheduler,
            "trials": found.trials, **numbers, **idle,
        }  # fmt: skip


def _drawn(cell: Cell) -> tuple[list[Request], tuple[Gpu, ...]]:
    """The jobs of a cell, and its cluster."""
    setting, seed = cell.setting, cell.seed
    if cell.jobs == "few":
        return few_jobs.drawn(seed, setting.largest) if setting.largest else few_jobs.single(setting.seconds)
    requests = published_mix.jobs(seed, setting.ratio)
    gpus = published_mix.servers(seed, cell.servers, gpus=setting.gpus)
    return requests if setting.load is None else job_lists.poisson(requests, len(gpus), setting.load, seed), gpus


def _model(cell: Cell) -> Model:
    """Equation 8 in a setting; what contention costs is cut off where exchanging would take more than ``most``."""
    setting, uplink_bps = cell.setting, published_mix.RATE_BPS
    model = Model(
        math.inf if setting.unlimited else uplink_bps,
        math.inf if setting.intra is None else setting.intra * uplink_bps,
        math.inf if setting.reduce is None else setting.reduce * uplink_bps,
        cell.alpha if setting.alpha is None else setting.alpha,
        setting.xi1,
        setting.xi2_s,
    )
    if setting.most is None:
        return model
    slowest = setting.most / (1 - setting.most) / setting.ratio
    return replace(model, degradation=lambda alpha, k: min(slowest, linear(alpha, k)))

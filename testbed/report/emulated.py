"""Shared parts of figures of emulated schedules: a row per run, with the measured values and equation 8's for the same schedule."""

from __future__ import annotations

import pandas as pd

from testbed.core.placing import After, Assignment, Assignments, At, Request
from testbed.core.runs.load import LoadError, Run
from testbed.core.runs.plan import JobPlan, Plan
from testbed.models import run_schedule_metrics
from testbed.models.cluster import Servers, follow, simulate
from testbed.models.contention import Contended, Model
from testbed.report.study import Study

# Constants that the figure `sjf-model` fits to Reno's runs on two servers (docs/reference/schedulers.md): other jobs and servers than here.
ALPHA, XI1 = 0.14, 0.86


def table(study: Study) -> pd.DataFrame:
    """A row per run: ``ratio, scheduler, system, role, seed``, makespan and mean completion, measured and predicted, in seconds; by which share of its completion a job is mispredicted, in the mean."""
    if not study.runs:
        raise LoadError(f"{study.id}: there are no runs. Run experiments/{study.id}.toml")
    return pd.DataFrame([_row(run) for run in study.runs])


def _row(run: Run) -> dict[str, object]:
    ran, predicted_s = run_schedule_metrics.ran(run), foretold_s(run.plan)
    took = [job.end_s - job.request.arrival_s for job in ran]
    return {
        "ratio": ratio(run.plan), "scheduler": run.plan.scheduler, "system": run.system, "role": run.role, "seed": run.seed,
        "makespan_s": max(job.end_s for job in ran), "completion_s": sum(took) / len(took),
        "foretold_makespan_s": max(predicted_s.values()),
        "foretold_completion_s": sum(predicted_s[job.request.job] - job.request.arrival_s for job in ran) / len(predicted_s),
        "job_off": sum(abs((predicted_s[job.request.job] - job.request.arrival_s) / lasted - 1) for job, lasted in zip(ran, took, strict=True)) / len(predicted_s),
        "failed": sum(not job.done for job in ran),
    }  # fmt: skip


def foretold_s(plan: Plan) -> dict[int, float]:
    """Return the end of each job in seconds, predicted by equation 8 for the plan's GPUs and order."""
    model = Model(float(plan.link.rate_bps), alpha=ALPHA, xi1=XI1)
    requests = [_request(job, model) for job in plan.jobs]
    given = Assignments(tuple(_assignment(job) for job in plan.jobs))
    servers = Servers(tuple(dict.fromkeys(gpu for one in given.jobs for gpu in one.gpus)))
    arriving, policy = follow(given, requests, servers)
    ran = simulate(arriving, servers, policy, Contended(model, len(servers.sizes)))
    if ran is None:
        raise LoadError(f"the schedule of {plan.experiment} never ends")
    return {one.request.job: one.end_s for one in ran}


def ratio(plan: Plan) -> float:
    """Exchanging alone ÷ computing, of a ring of very many GPUs: 2 m over a link, ÷ computing."""
    spanning = [job for job in plan.jobs if len(set(job.hosts)) > 1]
    if not spanning:
        return 0.0
    job = spanning[0]
    workers = len(run_schedule_metrics.life(job).gpus)
    return round(_exchange_s(job) * workers / (workers - 1) / (job.compute_ns / 1e9), 2)


def _exchange_s(job: JobPlan) -> float:
    if job.ideal_s is None:
        raise LoadError(f"job {job.job} is a real program, so its sending time is unknown")
    return max(0.0, job.ideal_s - job.compute_ns / 1e9)


def _request(job: JobPlan, model: Model) -> Request:
    """With as many bytes as make equation 8 predict the job's iteration time in isolation."""
    life = run_schedule_metrics.life(job)
    gpus = len(life.gpus)
    size = _exchange_s(job) * model.rate_bps / 8 * gpus / (2 * (gpus - 1)) if gpus > 1 else 0.0
    return Request(job.job, gpus, job.iterations, round(size), job.compute_ns / 1e9, life.arrival_ns / 1e9)


def _assignment(job: JobPlan) -> Assignment:
    life = run_schedule_metrics.life(job)
    start = After(life.after) if life.after else At(life.at_ns / 1e9)
    return Assignment(job.job, run_schedule_metrics.gpus(job), start, 0.0)

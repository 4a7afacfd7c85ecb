"""Run directories as the fluid model has them: complete, by real plans, in a second; the truth behind them is known.

What a congestion control with F does here is `testbed.models.fluid` with shares ∝ F^exponent, and windows that follow shares.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pandas as pd

from testbed.core.runs import documents
from testbed.core.runs import rows as run_rows
from testbed.core.runs.load import Run, digest
from testbed.core.runs.plan import Plan
from testbed.models import fluid
from testbed.planning import plan as plans
from testbed.report import fluid_comparison
from testbed.spec import Spec
from tests.support import manifests, synthetic

STEPS = 60  # in place of 200: coarse, and near enough for what is judged here


def write(spec: Spec, results: Path, exponent: float = 0.5, **manifest: Any) -> Path:
    """Every run of an experiment below ``results``; its folder. ``manifest``: what these runs' manifests have besides."""
    for plan in plans.plans(plans.resolve(spec)):
        write_run(plan, results / plan.experiment / plan.folder, exponent, **manifest)
    return results / plan.experiment


def write_run(plan: Plan, folder: Path, exponent: float = 0.5, **manifest: Any) -> None:
    folder.mkdir(parents=True)
    run = Run(folder, manifests.manifest(plan), manifests.VALID)
    noise_s = float(plan.jobs[0].noise.removesuffix("%")) / 100 * float(fluid_comparison.compute_s(run)[0])
    with mock.patch.object(fluid, "STEPS", STEPS):
        flows = fluid.simulate(
            fluid_comparison.compute_s(run), fluid_comparison.comm_s(run), [[job.offset_ns / 1e9 for job in plan.jobs]], fluid_comparison.curve(run),
            exponent=exponent, iterations=plan.iterations, noise_s=noise_s, seed=plan.seed,
        )  # fmt: skip
    files = {name: synthetic.text(table.round(9)) for name, table in _tables(plan, run, flows).items()}
    whole = manifests.manifest(plan, digest=digest(files), command=["__main__.py", "sweep"], **manifest)
    for name, content in files.items():
        (folder / name).write_bytes(content)
    (folder / "manifest.json").write_bytes(documents.encode(whole))
    (folder / "verdict.json").write_bytes(documents.encode(manifests.VALID))


def _tables(plan: Plan, run: Run, model: fluid.Flows) -> dict[str, pd.DataFrame]:
    rows, operations, samples = [], [], []
    end_s = float(model.end_s.max())
    times = np.arange(0, end_s, plan.sample_ns / 1e9)
    curve = fluid_comparison.curve(run)
    sent_by_all = np.zeros_like(times)
    for column, job in enumerate(plan.jobs):
        size = job.bytes_per_worker[0]
        start, begin, end = (table[0, :, column] for table in (model.start_s, model.comm_start_s, model.end_s))
        for number in range(len(start)):
            for worker in (0, 1):
                comm = begin[number] if worker == 0 else start[number]
                rows.append(
                    (
                        plan.system.label,
                        plan.seed,
                        job.job,
                        worker,
                        number,
                        start[number],
                        comm,
                        end[number],
                        size * (1 - worker),
                        0.0,
                    )
                )
                operations.append((job.job, worker, number, "exchange", comm, end[number]))
        # Evenly within a phase: the tables of a fluid need no more.
        knots = np.column_stack([begin, end]).ravel()
        sent = np.interp(times, knots, np.repeat(np.arange(len(begin) + 1), 2)[1:-1] * float(size))
        current = np.searchsorted(begin, times, side="right") - 1
        ratio = np.clip(sent / size - np.maximum(current, 0), 0, 1)
        known = (current >= fluid.MLTCP_ACTIVE_FROM) & ("mltcp" in job.cc.name)
        sent_by_all += sent
        samples.append(
            pd.DataFrame({
                "t_s": times, "job": job.job, "worker": 0, "flow": "0-1", "cwnd_segments": 10, "rtt_us": 100,
                "bytes_acked": sent.astype(int), "retrans_segments": 0, "mltcp_r": np.where(known, ratio, np.nan),
                "mltcp_iterations": np.maximum(number, 0), "mltcp_f": np.where(known, curve(ratio), 1.0),
            })
        )  # fmt: skip
    name, link = next(iter(plan.bottlenecks.items()))
    carried = sent_by_all * 1514 / 1448
    if plan.background:  # it fills the link
        carried = np.maximum(carried, times * link.rate_bps / 8)
    links = pd.DataFrame({
        "t_s": times, "link": name, "bytes": carried.astype(int),
        "packets": (sent_by_all / 1448).astype(int), "drops": 0, "ecn_marks": 0, "backlog_bytes": 0,
    })  # fmt: skip
    columns = run_rows.columns(run_rows.Iteration)
    return {
        "iterations.csv": pd.DataFrame(rows, columns=columns),
        "operations.csv": pd.DataFrame(
            operations, columns=["job", "worker", "iteration", "operation", "start_s", "end_s"]
        ),
        "links.csv": links,
        "flows.csv": pd.concat(samples),
    }

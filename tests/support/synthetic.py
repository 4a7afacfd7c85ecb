"""Run directories of an invented testbed whose iterations take what a test says: for figures, without a network.

The plans are real ones; the tables are what such iterations would leave.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pandas as pd

from testbed.core.runs import documents, rows
from testbed.core.runs.load import TABLES, digest
from testbed.core.runs.plan import Life, Plan
from testbed.planning import plan
from testbed.spec import Spec, sweep
from tests.support import manifests

Times = Callable[[Plan, int], float]  # iteration time ÷ ideal, of a run's n-th iteration
STEP_S = 0.05
EXPERIMENTS = Path(__file__).parents[2] / "experiments"


def write(specs: list[Spec], results: Path, times: Times, *, ratio: float = math.nan) -> None:
    """Every run of ``specs``, and of their jobs alone (whose iterations take the ideal); MLTCP's flows report ``ratio`` from the start."""
    for one in itertools.chain.from_iterable(plan.plans(plan.resolve(spec)) for spec in specs):
        folder = results / one.experiment / one.folder
        folder.mkdir(parents=True)
        tables = _tables(one, times, ratio)
        for name, table in zip(TABLES, tables, strict=True):
            (folder / name).write_bytes(text(table))
        told = manifests.manifest(
            one,
            crossings=manifests.crossings(one),
            digest=digest({name: (folder / name).read_bytes() for name in TABLES}),
        )
        if one.lives:
            (folder / "jobs.csv").write_bytes(text(_lives(one, times)))
        (folder / "manifest.json").write_bytes(documents.encode(told))
        (folder / "verdict.json").write_bytes(documents.encode(manifests.VALID))


def gains(one: Plan, _iteration: int) -> float:
    """MLTCP takes the ideal time, its base 1.4 times as long."""
    return 1.0 if one.system.role == "treatment" else 1.4


def experiment(
    name: str, results: Path, times: Times, asked: dict[str, Any] | None = None, *, only: str = "", **changes: Any
) -> None:
    """The runs of ``experiments/NAME.toml``, of three seeds: of the quick set, or what is ``asked``; of the points with ``only`` in their name."""
    specs = sweep.read(str(EXPERIMENTS / f"{name}.toml"), {"quick": True} if asked is None else asked)
    changed = {"seeds": 3, **changes}
    write([msgspec.structs.replace(spec, **changed) for spec in specs if only in f"{spec.name}."], results, times)


def text(table: pd.DataFrame) -> bytes:
    """As CSV; pandas takes four times as long, and tests write thousands."""
    missing = table.isna().to_numpy().T
    columns = [
        [
            "" if no else f'"{value}"' if "," in str(value) else str(value)
            for value, no in zip(table[name].tolist(), gone, strict=True)
        ]
        for name, gone in zip(table.columns, missing, strict=True)
    ]
    return "".join(
        ",".join(row) + "\n" for row in [tuple(map(str, table.columns)), *zip(*columns, strict=True)]
    ).encode()


def _lives(one: Plan, times: Times) -> pd.DataFrame:
    """``jobs.csv``: jobs wait for those that the plan says."""
    jobs, ends = {job.job: job for job in one.jobs}, dict[int, float]()

    def start(life: Life) -> float:
        return max([life.at_ns / 1e9, *map(end, life.after)])

    def end(number: int) -> float:
        job = jobs[number]
        assert job.life is not None
        if number not in ends:
            lasts = sum((job.ideal_s or 1.0) * times(one, i) for i in range(job.iterations))
            ends[number] = start(job.life) + lasts
        return ends[number]

    return pd.DataFrame([
        {"job": number, "arrival_s": life.arrival_ns / 1e9, "start_s": start(life), "end_s": end(number), "outcome": "done", "gpus": " ".join(life.gpus), "failure_reason": ""}
        for number, job in jobs.items() if (life := job.life) is not None
    ])  # fmt: skip


def _tables(one: Plan, times: Times, ratio: float) -> list[pd.DataFrame]:
    """``iterations``, ``operations``, ``links``, ``flows``."""
    iterations, operations, flows, crossings = [], [], [], manifests.crossings(one)
    last = max(1.5 * job.iterations * (job.ideal_s or 1.0) for job in one.jobs)  # jobs go on until every one is through
    for place, job in enumerate(one.jobs):
        ideal = job.ideal_s or 1.0
        lasts = [ideal * (1.0 if one.alone is not None else times(one, i)) for i in range(job.iterations)]
        ends = ideal * place / len(one.jobs) + np.cumsum(lasts)
        for i, (end, length) in enumerate(zip(ends, lasts, strict=True)):
            begin = end - length
            for worker in range(len(job.hosts)):
                iterations.append(
                    (one.system.label, one.seed, job.job, worker, i, begin, begin + 0.4 * length, end, 1, 0.0)
                )
                operations += [(job.job, worker, i, each.id, begin + 0.4 * length, end) for each in job.collectives[:1]]
        t = np.arange(0.0, last, STEP_S)
        own = [flow for flow in crossings if flow.job == job.job]
        sent = max(job.bytes_per_worker) * t / ideal / max(1, sum(flow.worker == 0 for flow in own))
        flows += [pd.DataFrame({
            "t_s": t, "job": job.job, "worker": flow.worker, "flow": flow.flow, "cwnd_segments": 10, "rtt_us": 100, "bytes_acked": sent.astype(int),
            "retrans_segments": (10 * t).astype(int), "mltcp_r": ratio, "mltcp_iterations": 0, "mltcp_f": 1.0,
        }) for flow in own]  # fmt: skip
    names = rows.columns(rows.Iteration)
    every = pd.concat(flows, ignore_index=True)
    links = pd.DataFrame({"t_s": every["t_s"].unique(), "link": "s1-s2", "bytes": 0, "packets": 0, "drops": 0, "ecn_marks": 0, "backlog_bytes": 0})  # fmt: skip
    links["ecn_marks"] = np.arange(len(links))
    return [
        pd.DataFrame(iterations, columns=names),
        pd.DataFrame(operations, columns=rows.columns(rows.Operation)),
        links,
        every,
    ]

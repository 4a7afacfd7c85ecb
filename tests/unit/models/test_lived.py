"""Runs whose jobs hold GPUs, in the numbers of a schedule."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import msgspec
import pandas as pd
import pytest

from testbed import spec
from testbed.campaign.summary import summarise
from testbed.cli import table
from testbed.cli.schedule import emulate
from testbed.core.placing import Gpu, Request
from testbed.core.runs import documents
from testbed.core.runs.load import Experiment, LoadError, Run, load_experiment
from testbed.core.runs.manifest import Manifest
from testbed.core.runs.plan import Plan
from testbed.core.runs.summary import Summary
from testbed.models import run_schedule_metrics
from testbed.models.cluster import Ran
from testbed.models.contention import Model
from testbed.planning import schedules
from tests.support import synthetic

# Two servers of four GPUs. Job 0 spans both, job 1 (which would fit into one) both, too; job 2 waits for job 0's end.
FIELDS: dict[str, Any] = {
    "name": "held", "system": ["reno"], "topo": "cluster,4,4", "scheduler": "first_fit", "rate": "10gbit", "mtu": 9000,
    "iterations": 20, "alone": "none",
    "job": [
        {"gpus": 2, "compute": "10ms", "bytes": "5MB"},
        {"gpus": 4, "compute": "10ms", "bytes": "5MB"},
        {"gpus": 6, "compute": "10ms", "bytes": "5MB"},
    ],
}  # fmt: skip


def made(tmp_path: Path, times: Callable[[Plan, int], float] = lambda _plan, _i: 1.0, **fields: Any) -> Experiment:
    """The experiment, whose iterations take what ``times`` says, as a share of their ideal."""
    synthetic.write([spec.make({**FIELDS, **fields}, {}, "the test")], tmp_path, times)
    return load_experiment(tmp_path / "held")


def changed(run: Run, told: Manifest | None = None, **lives: list[Any]) -> Run:
    """The same run with other columns of ``jobs.csv``, or another manifest."""
    told = told or run.manifest
    found = Run(run.path, told, run.verdict)
    assert run.lives is not None
    vars(found)["lives"] = run.lives.assign(**lives)
    return found


def test_by_hand(tmp_path: Path) -> None:
    (run,) = made(tmp_path).runs
    assert [len(job.hosts) for job in run.jobs] == [1, 2, 2] and run.plan.servers == {"s1": 4, "s2": 4}
    first, second, third = (20 * float(job.ideal_s or 0) for job in run.jobs)
    found = run_schedule_metrics.metrics(run)
    assert found is not None
    assert found.makespan_s == pytest.approx(second + third)
    assert found.mean_completion_s == pytest.approx((first + 2 * second + third) / 3)
    assert found.mean_queueing_s == pytest.approx(second / 3)
    inside = 20 * 0.01  # one server holds job 1's four GPUs, and there they exchange for nothing
    assert first == pytest.approx(inside)
    assert found.mean_slowdown == pytest.approx((1 + second / inside + (second + third) / third) / 3)
    assert found.max_contention == found.mean_contention == 1
    assert found.utilisation == pytest.approx((2 * first + 4 * second + 6 * third) / (8 * (second + third)))
    idle = found.idle_gpu_h
    assert idle.fragment * 3600 == pytest.approx(2 * first + 4 * (second - first)), "job 2 waits for six"
    assert idle.no_job * 3600 == pytest.approx(2 * third)
    assert idle.waiting == pytest.approx(0, abs=1e-12) and idle.contention == pytest.approx(0, abs=1e-12)


def test_a_schedule_carried_out_as_computed_has_the_numbers_that_were_computed(tmp_path: Path) -> None:
    """Headers are 1 % of a jumbo frame, which a plan knows of and a list of jobs does not."""
    requests = [
        Request(0, 2, 30, 6_250_000, 0.01),
        Request(1, 6, 20, 12_345_678, 0.0123),
        Request(2, 5, 10, 10**7, 0.005, 0.1),
        Request(3, 6, 20, 10**7, 0.02),
    ]
    model, sizes = Model(10e9), [4, 4, 4]
    gpus = tuple(Gpu(f"h{host}", slot) for host, size in enumerate(sizes, 1) for slot in range(size))
    for scheduler in ("random", "first_fit", "tightest_fit"):
        said = schedules.carry_out(scheduler, requests, gpus, model, seed=2)
        fields = {**emulate.fields("held", requests, sizes, model, [scheduler], ["reno"], 2), "alone": "none"}
        synthetic.write([spec.make(fields, {}, "the test")], tmp_path / scheduler, lambda _plan, _i: 1.0)
        (run,) = load_experiment(tmp_path / scheduler / "held").runs
        run = changed(run, start_s=[one.start_s for one in said.ran], end_s=[one.end_s for one in said.ran])
        found = run_schedule_metrics.metrics(run)
        assert found is not None
        computed, numbers = asdict(said.metrics), asdict(found)
        lost, foretold = numbers.pop("idle_gpu_h"), computed.pop("idle_gpu_h")
        assert numbers == pytest.approx(computed, rel=0.015)
        assert lost == pytest.approx(foretold, abs=0.015 * len(gpus) * said.metrics.makespan_s / 3600)


def test_who_failed_or_left_counts_for_gpus_alone(tmp_path: Path) -> None:
    (run,) = made(tmp_path).runs
    assert run.lives is not None
    rows = run.lives
    run = changed(
        run, outcome=["failed", "done", "left"], start_s=[0.0, 0.0, None], end_s=[1.0, *rows["end_s"][1:2], 0.1]
    )
    failed, done, left = run_schedule_metrics.ran(run)
    assert [job.done for job in (failed, done, left)] == [False, True, False]
    assert failed.held[0].iterations == pytest.approx(1.0 / float(run.jobs[0].ideal_s or 0)), (
        "at its own pace to the end"
    )
    assert left.held == () and (left.start_s, left.end_s) == (0.1, 0.1)
    found = run_schedule_metrics.metrics(run)
    assert found is not None and found.mean_completion_s == rows["end_s"][1] and found.makespan_s == 1.0
    assert run_schedule_metrics.metrics(changed(run, outcome=["failed"] * 3)) is None, "nobody came to an end"


def test_measured_alone_is_taken_before_the_ideal(tmp_path: Path) -> None:
    """Where it was measured: on fewer servers than a job got it was not."""
    (run,) = made(tmp_path).runs
    ideal, measured = (
        run_schedule_metrics.metrics(run),
        run_schedule_metrics.metrics(run, pd.Series([2 * float(job.ideal_s or 0) for job in run.jobs])),
    )
    assert ideal is not None and measured is not None
    spread = float(run.jobs[1].ideal_s or 0) / 0.01
    rest = 3 * ideal.mean_slowdown - spread
    assert 3 * measured.mean_slowdown == pytest.approx(rest / 2 + spread)


def test_contention_is_that_of_the_fullest_link(tmp_path: Path) -> None:
    """Two jobs on servers of their own; behind these both may cross one bottleneck."""
    job = {"gpus": 2, "compute": "10ms", "bytes": "5MB"}
    (run,) = made(tmp_path, topo="star,4,1", job=[job, job]).runs
    assert [one.contention for one in run_schedule_metrics.ran(run)] == [1, 1]
    crossing = run.manifest.crossings or ()
    shared = [msgspec.structs.replace(one, links=(*one.links, "s1-s2")) for one in crossing]
    found = run_schedule_metrics.ran(changed(run, msgspec.structs.replace(run.manifest, crossings=tuple(shared))))
    assert {one.job for one in shared} == {0, 1} and [one.contention for one in found] == [2, 2]
    older = run_schedule_metrics.ran(changed(run, msgspec.structs.replace(run.manifest, crossings=None)))
    assert [one.contention for one in older] == [1, 1]


def test_what_nobody_can_tell(tmp_path: Path) -> None:
    (run,) = made(tmp_path).runs
    older = msgspec.structs.replace(run.manifest, plan=msgspec.structs.replace(run.plan, servers={}))
    assert run_schedule_metrics.metrics(changed(run, older)) is None
    with pytest.raises(LoadError, match="other jobs than its plan"):
        run_schedule_metrics.ran(changed(run, job=[0, 1, 7]))
    synthetic.write(
        [spec.make({"name": "free", "jobs": 2, "system": ["reno"], "iterations": 3}, {}, "the test")],
        tmp_path,
        lambda *_: 1.0,
    )
    (free,) = load_experiment(tmp_path / "free").runs
    assert run_schedule_metrics.metrics(free) is None
    with pytest.raises(LoadError, match="hold no GPUs"):
        run_schedule_metrics.ran(free)


def two_systems(tmp_path: Path, **fields: Any) -> Summary:
    """Three seeds; the second system's iterations take half as long again."""
    return summarise(
        made(
            tmp_path,
            lambda one, _i: (1.5 if one.system.label == "cubic" else 1.0) * (1 + 0.01 * one.seed),
            **{"system": ["reno", "cubic"], "seeds": 3, **fields},
        )
    )


def test_a_summary_has_them_over_its_seeds(tmp_path: Path) -> None:
    found = two_systems(tmp_path)
    by_system = {row.system: row.schedule for row in found.results}
    reno, cubic = by_system["reno"], by_system["cubic"]
    assert reno is not None and cubic is not None and reno.alone == "ideal"
    assert cubic.makespan_s == pytest.approx(1.5 * reno.makespan_s)
    assert reno.makespan_s_ci95 is not None and reno.makespan_s_ci95[0] < reno.makespan_s < reno.makespan_s_ci95[1]
    assert reno.mean_completion_s_ci95 is not None
    assert reno.max_completion_s == pytest.approx(reno.makespan_s * 1.03 / 1.02), "the largest of all seeds"
    assert isinstance(reno.max_contention, int) and reno.idle_gpu_h.contention > 0
    assert documents.decode(documents.encode(found), Summary) == found


def test_a_summary_says_how_alone_is_known(tmp_path: Path) -> None:
    """Jobs alone take the ideal there."""
    (row,) = summarise(made(tmp_path, alone="each", system=["reno"])).results
    assert row.schedule is not None and row.schedule.alone == "measured"
    assert row.schedule.idle_gpu_h.contention == pytest.approx(0, abs=1e-9)


def test_jobs_without_gpus_have_no_schedule(tmp_path: Path) -> None:
    synthetic.write(
        [spec.make({"name": "free", "jobs": 2, "system": ["reno"], "iterations": 12}, {}, "the test")],
        tmp_path,
        lambda *_: 1.0,
    )
    found = summarise(load_experiment(tmp_path / "free"))
    assert b"schedule" not in documents.encode(found).replace(b"scheduler", b"")
    assert table.gpus_tables(found) == []


def test_a_hundred_columns_are_enough(tmp_path: Path) -> None:
    found = two_systems(tmp_path, system=["reno", "mltcp_cubic:slope=1.75,intercept=0.25"])
    tables = table.gpus_tables(found)
    lines = [line.plain for sheet in tables for line in sheet.lines(100)[0]]
    assert all(sheet.lines(100)[1] == () for sheet in tables)
    assert max(map(len, lines)) <= 100
    rows = [line.split() for line in lines if line.startswith("reno ")]
    assert [len(row) for row in rows] == [8, 6]


def test_who_never_got_gpus_held_none() -> None:
    """One that is done held them from its start to its end."""
    never = Ran(Request(0, 1), (), 2.0, 2.0, 0, (), done=False)
    through = Ran(Request(0, 1, 3), (Gpu("s1"),), 1.0, 2.0, 0, ())
    assert never.held == () and [(one.start_s, one.end_s, one.iterations) for one in through.held] == [(1.0, 2.0, 3)]

"""What ranks did, and when: measured as it was measured, and computes as the plan and its noise have them."""

from __future__ import annotations

from pathlib import Path

import pytest

from testbed.core.errors import RequestError
from testbed.core.runs.load import Run, load_run
from testbed.exports import timeline


def test_iterations_and_exchanges_are_those_of_the_tables(computed: Run) -> None:
    for job in computed.jobs:
        slices = timeline.of_job(computed, job)
        for kind, table, name in (
            (timeline.ITERATION, computed.iterations, "iterations"),
            (None, computed.operations, "operations"),
        ):
            own = table[table["job"] == job.job].sort_values(["worker", "iteration", "start_s"])
            found = [one for one in slices if (one.kind == kind if kind else one.exchanges)]
            assert [(one.rank, one.iteration, one.start_s, one.end_s) for one in found] == list(
                own[["worker", "iteration", "start_s", "end_s"]].itertuples(index=False, name=None)
            ), name
            assert not any(one.reconstructed for one in found)


def test_a_compute_lasts_as_long_as_the_plan_and_the_noise_of_its_iteration_say(computed: Run) -> None:
    (job,) = [job for job in computed.jobs if job.noise != "0%"]
    slices = timeline.of_job(computed, job, 0)
    computes = [one for one in slices if one.kind == timeline.COMPUTE]
    assert len(computes) == 6 and all(one.reconstructed for one in computes)
    took = [one.end_s - one.start_s for one in computes]
    assert max(took) > 1.02 * min(took)  # so the noise matters
    for compute in computes:
        exchange = next(one for one in slices if one.exchanges and one.iteration == compute.iteration)
        assert compute.end_s == pytest.approx(exchange.start_s, abs=2e-9)  # nothing else lets it wait


def test_computes_wait_for_what_they_depend_on_and_end_before_what_waits_for_them(computed: Run) -> None:
    job = computed.jobs[0]
    slices = timeline.of_job(computed, job, 3)
    for iteration in range(6):
        own = {one.name: one for one in slices if one.iteration == iteration}
        assert len(own) == 1 + len(job.operations)
        for op in job.operations:
            assert all(own[name].end_s <= own[op.id].start_s + 2e-9 for name in op.after), op.id
        last = max((one for one in own.values() if one.kind == timeline.COMPUTE), key=lambda one: one.end_s)
        assert last.name == "optimizer"
        assert last.end_s == pytest.approx(own[f"iteration {iteration}"].end_s, abs=2e-9)


def test_a_run_of_a_kernel_too(stored: Path) -> None:
    run = load_run(stored)
    for job in run.jobs:
        for one in timeline.of_job(run, job):
            if one.kind == timeline.COMPUTE:
                planned = next(op.duration_ns or 0 for op in job.operations if op.id == one.name) / 1e9
                assert one.end_s - one.start_s == pytest.approx(planned, rel=1e-3)


def test_a_job_is_found_by_number_or_trace(computed: Run) -> None:
    assert timeline.find_job(computed, "1") is computed.jobs[1]
    assert timeline.find_job(computed, "bert-base") is computed.jobs[0]
    with pytest.raises(RequestError, match=r"no such job\. Did you mean 'bert-base'"):
        timeline.find_job(computed, "bert-bass")
    with pytest.raises(RequestError, match="ranks 0 to 1"):
        timeline.check_rank(computed.jobs[1], 2)

"""``schedule --emulate``: what is asked of a network, and how predicted and measured are compared."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pandas as pd
import pytest

from testbed import spec
from testbed.cli import main
from testbed.cli.schedule import emulate
from testbed.core.errors import EXIT_OK, EXIT_REQUEST
from testbed.core.placing import Gpu, Request
from testbed.core.runs.load import LoadError
from testbed.models.contention import Model
from testbed.planning import plan, schedules
from testbed.schedulers.job import names
from tests.support.clusters import EXHAUSTIVE

REQUESTS = [Request(7, 2, 30, 6_250_000, 0.01), Request(3, 6, 20, 12_345_678, 0.0123), Request(9, 8, 10, 0, 0.005, 0.1)]
SIZES = [4, 4]
MODEL = Model(10e9, alpha=0.2)


@pytest.mark.parametrize(
    "scheduler", [name for name in names() if name not in ("packed", "spread", "las", *EXHAUSTIVE)]
)
def test_the_network_gets_the_schedule_that_was_computed(scheduler: str) -> None:
    """Same GPUs, same order; a job that waited for others waits for them there."""
    gpus = tuple(Gpu(f"h{host}", slot) for host, size in enumerate(SIZES, 1) for slot in range(size))
    said = schedules.carry_out(scheduler, REQUESTS, gpus, MODEL, seed=1)
    asked = spec.make(emulate.fields("x", REQUESTS, SIZES, MODEL, [scheduler], ["reno"], 1), {}, "the test")
    (placed,) = plan.resolve(asked, MODEL).placed
    for ran, job in zip(said.ran, placed.jobs, strict=True):
        assert job.life is not None
        assert [gpu.replace("s", "h", 1) for gpu in job.life.gpus] == [f"{gpu.host}:{gpu.slot}" for gpu in ran.gpus]
        assert job.life.at_ns / 1e9 <= ran.start_s + 1e-9
        assert job.iterations == ran.request.iterations and job.life.arrival_ns == round(ran.request.arrival_s * 1e9)


def predicted(*ends: float) -> schedules.Carried:
    return cast(schedules.Carried, SimpleNamespace(ran=[SimpleNamespace(end_s=end) for end in ends]))


def run(table: pd.DataFrame | None) -> Any:
    return SimpleNamespace(lives=table, system="reno", path="results/x", verdict=SimpleNamespace(verdict="valid"))


def test_how_far_the_model_is_off() -> None:
    table = pd.DataFrame(
        {"job": [0, 1, 2], "start_s": [0.0, 0.0, 1.0], "end_s": [1.0, 2.0, 4.1], "outcome": ["done"] * 3}
    )
    found = emulate.compared(run(table), REQUESTS, predicted(1.1, 1.8, 4.1))
    assert (found.makespan_s, found.makespan_off) == (4.1, 0.0)
    assert found.mean_completion_s == pytest.approx((1 + 2 + 4) / 3)
    assert found.completion_off == pytest.approx((1.1 + 1.8 + 4) / 7 - 1)
    assert found.job_off == pytest.approx((0.1 + 0.1 + 0) / 3)
    assert [one.job for one in found.jobs] == [7, 3, 9]


def test_jobs_that_hold_no_gpus_have_no_lives() -> None:
    with pytest.raises(LoadError, match="hold no GPUs"):
        emulate.compared(run(None), REQUESTS, predicted(1.0, 1.0, 1.0))


@pytest.fixture
def jobs(tmp_path: Path) -> str:
    path = tmp_path / "jobs.csv"
    rows = [
        f"{one.job},{one.gpus},{one.iterations},{one.gradient_bytes},{one.compute_s},{one.arrival_s}"
        for one in REQUESTS
    ]
    path.write_text("\n".join(["job,gpus,iterations,gradient_bytes,compute_s,arrival_s", *rows]) + "\n")
    return str(path)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--system", "reno"], "--system needs --emulate"),
        (["--emulate", "--slot", "1s"], "real traffic has no time slots"),
        (["--emulate", "--scheduler", "las:threshold=0.01"], "cannot preempt jobs"),
        (["--emulate", "--system", "cassini"], "start together"),
        (["--emulate", "--system", "nonsense"], "nonsense"),
        (["--emulate", "--set", "mtu=1"], "mtu"),
    ],
)
def test_what_cannot_be_emulated(
    jobs: str, words: list[str], said: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    out = ["--out", str(tmp_path)] if "--emulate" in words else []
    assert main(["schedule", jobs, "--servers", "2", "--gpus", "4", *words, *out, *(["--scheduler", "fifo"] if "--scheduler" not in words else [])]) == 2  # fmt: skip
    found = capsys.readouterr().err
    assert said in found and json.dumps(found)


def test_a_dry_run_names_runs_folder_and_time(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("jobs.csv").write_text(
        "job,gpus,iterations,gradient_bytes,compute_s,arrival_s\n0,4,3,1000000,0.1,0\n1,4,3,1000000,0.1,0\n"
    )
    command = [
        "schedule",
        "jobs.csv",
        "--servers",
        "2",
        "--scheduler",
        "first_fit",
        "random",
        "--system",
        "reno",
        "cubic",
        "--emulate",
        "--dry-run",
    ]
    assert main([*command, "--json"]) == EXIT_OK
    document = json.loads(capsys.readouterr().out)
    assert document["runs"] == 4 and document["folder"] == "results/schedule-jobs" and document["expected_s"] > 0
    assert main(command) == EXIT_OK and "4 runs" in capsys.readouterr().out
    assert [path.name for path in tmp_path.iterdir()] == ["jobs.csv"]
    assert main([*command[:-2], "--dry-run"]) == EXIT_REQUEST

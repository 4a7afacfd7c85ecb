"""Figure ``stacks``: what is kept of other simulators, what they are given of a run, and what the figure makes of both."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pandas as pd
import pytest

from benchmarks import stacks
from testbed.core.environment import ROOT
from testbed.report import figures, sections
from testbed.report.study import load_study
from tests.support import synthetic

KEYS = ["stack", "jobs", "arm", "seed", "job"]
KEPT = pd.read_csv(stacks.TABLE)


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("stacks") / "results"
    synthetic.experiment("stacks", folder, lambda one, _: 1.1 if one.system.role == "treatment" else 1.4, {})
    return folder


def test_kept_iterations_follow_each_other() -> None:
    every = KEPT.sort_values([*KEYS, "iteration"])
    assert (every["start_s"] < every["comm_start_s"]).all() and (every["comm_start_s"] < every["end_s"]).all()
    for _, job in every.groupby(KEYS):
        assert list(job["iteration"]) == list(range(15))
        assert (job["start_s"].to_numpy()[1:] == job["end_s"].to_numpy()[:-1]).all()


def test_every_stack_has_every_run() -> None:
    runs = KEPT.groupby("stack")[["jobs", "arm", "seed", "job"]].apply(lambda rows: len(rows.drop_duplicates()))
    assert dict(runs) == {"ns-3": 100, "htsim": 100}  # 2 and 8 jobs, two arms, five seeds
    varied = pd.read_csv(stacks.VARIED)
    assert {stack: set(rows["variant"]) for stack, rows in varied.groupby("stack")} == {
        stack: set(named) for stack, named in stacks.VARIANTS.items()
    }


def test_a_program_is_given_the_run_as_it_was(results: Path) -> None:
    run = next(run for run in load_study(results, "stacks").runs if len(run.jobs) == 2 and run.role == "treatment")
    told = stacks._settings(run)
    assert (told["rate_bps"], told["mtu"], told["buffer_packets"], told["mark_packets"], told["mltcp"]) == (
        200_000_000,
        1500,
        200,
        40,
        1,
    )
    assert told["bytes"] == run.jobs[0].bytes_per_worker[0]
    start, *computing = map(int, stacks._draws(run).splitlines()[0].split())
    first = run.iterations[(run.iterations["job"] == 0) & (run.iterations["worker"] == 0)].iloc[0]
    assert start == round(1e9 * first["start_s"]) and len(computing) == 15
    assert computing[0] == round(1e9 * (first["comm_start_s"] - first["start_s"]))


def test_a_gain_stands_next_to_linux_with_the_same_draws(results: Path, tmp_path: Path) -> None:
    sections.one(figures.find("stacks"), results, tmp_path)
    table = pd.read_csv(tmp_path / "stacks.csv")
    assert set(table["stack"]) == {"Linux", "ns-3", "htsim"} and set(table["seed"]) == {1, 2, 3}
    mine = table[table["stack"] == "Linux"]
    assert (mine["gain"] == mine["kernel_gain"]).all() and mine["gain"].round(3).eq(round(1.4 / 1.1, 3)).all()
    kept = KEPT[(KEPT["stack"] == "htsim") & (KEPT["jobs"] == 8) & (KEPT["seed"] == 1)]
    means = (kept["end_s"] - kept["start_s"]).groupby(kept["arm"]).mean()
    row = table[
        (table["stack"] == "htsim") & (table["variant"] == "same") & (table["jobs"] == 8) & (table["seed"] == 1)
    ]
    assert row["gain"].item() == pytest.approx(means["base"] / means["paper"], rel=1e-4)


def test_the_equation_moves_jobs_apart_until_they_interleave() -> None:
    apart = pd.read_csv(Path(ROOT) / "docs/report/figures/stacks-apart.csv")
    equation = apart[apart["stack"] == "Linux"].groupby("iteration")["equation"].mean().dropna()
    assert equation.index.min() == 2 and equation.is_monotonic_increasing and 0.95 < equation.iloc[-1] <= 1


@pytest.mark.skipif(shutil.which("g++") is None, reason="needs g++")
def test_the_programs_have_the_preset_of_the_kernel(tmp_path: Path) -> None:
    program = tmp_path / "jobs.cpp"
    program.write_text(
        '#include "stacks_jobs.h"\nint main() { std::printf("%d %d %u %llu", PAPER.slope, PAPER.intercept, PAPER.gap_factor, '
        "(unsigned long long)PAPER.total_bytes); }\n"
    )
    command = [
        "g++",
        "-std=c++17",
        "-iquote",
        f"{ROOT}/kernel",
        "-iquote",
        f"{ROOT}/benchmarks",
        str(program),
        "-o",
        str(tmp_path / "jobs"),
    ]
    subprocess.run(command, check=True)
    said = subprocess.run([str(tmp_path / "jobs")], check=True, capture_output=True, text=True).stdout
    assert said == "1792 256 512 0"


def test_the_quick_set_shows_what_it_has(tmp_path: Path) -> None:
    synthetic.experiment("stacks", tmp_path / "results", synthetic.gains, seeds=1)
    section = sections.one(figures.find("stacks"), tmp_path / "results", tmp_path)
    assert section.problems == () and set(pd.read_csv(tmp_path / "stacks.csv")["jobs"]) == {2}

"""Which jobs run in isolation, and which of these runs gives a job's time."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from testbed import spec
from testbed.cli import main
from testbed.core.errors import EXIT_OK
from testbed.core.runs import isolated
from testbed.core.runs.load import load_experiment
from testbed.core.runs.plan import Plan
from testbed.planning import plan

KINDS = ["resnet50", "vgg16", "bert-base"]
Run = tuple[str, int | None, int]  # system, the job in isolation, seed


def made(**fields: Any) -> list[Plan]:
    return plan.plans(plan.resolve(spec.make(fields, {}, "the test")))


def runs(**fields: Any) -> list[Run]:
    """The isolated ones."""
    return [(one.system.label, one.alone, one.seed) for one in made(**fields) if one.alone is not None]


def of_kinds(**fields: Any) -> list[Run]:
    return runs(job=KINDS, system=["reno", "mltcp_reno", "priority", "cubic"], **fields)


def test_each_kind_of_job_runs_in_isolation_once() -> None:
    assert of_kinds() == of_kinds(seeds=3) == [("reno", 0, 1), ("reno", 1, 1), ("reno", 2, 1)]
    assert len(of_kinds(isolated_runs="each", seeds=3)) == 36
    assert len(of_kinds(isolated_runs="first", seeds=3)) == 12 + 6  # a flow scheduler's of each seed
    assert [run[0] for run in of_kinds(isolated_runs="none")] == ["priority"] * 3


@pytest.mark.parametrize(
    "fields",
    [
        {"delay": "1ms"},
        {"loss": "0.1%"},
        {"ecn": "off"},
        {"ecn": "3kB"},
        {"system": ["reno", "bbr"]},
        {"system": ["reno", "ltp"]},
        {"system": ["reno", "reno:close=0.8"]},
        {"system": ["reno", "mltcp_reno:apply=both"]},
        {"system": ["reno", "mltcp_reno:slope=-1"]},
        {"system": ["dcqcn", "reno"], "ecn": "5kB,100kB,1%"},
    ],
    ids=str,
)
def test_under_another_system_where_a_lone_jobs_time_can_depend_on_it(fields: dict[str, Any]) -> None:
    found = runs(**{"system": ["reno", "mltcp_reno"], "seeds": 2, **fields})
    assert [(job, seed) for _, job, seed in found] == [(0, 1), (0, 1)] and found[0][0] != found[1][0]


@pytest.mark.parametrize(
    "system", ["cubic", "dctcp", "mltcp_reno:slope=2,intercept=0.5", "mltcp_reno:preset=paper", "priority"]
)
def test_not_where_it_cannot(system: str) -> None:
    assert runs(system=["reno", system]) == [("reno", 0, 1)]


def test_a_scheduler_that_sets_a_clock_has_isolated_runs_of_its_own_seed() -> None:
    assert runs(system=["reno", "cassini"], seeds=2) == [("reno", 0, 1), ("cassini", 0, 1), ("cassini", 0, 2)]


def test_a_lone_job_needs_no_other_run() -> None:
    assert runs(jobs=1) == runs(jobs=1, delay="1ms") == []
    assert runs(jobs=1, event=[{"at": "1s", "link": "s1-s2", "rate": "50%"}]) == [("reno", 0, 1)]
    assert len(runs(jobs=1, isolated_runs="first")) == 2


def test_another_seed_where_a_hash_chooses_paths() -> None:
    fields = {"topo": "leafspine", "jobs": 2, "workers": 4, "trace": "resnet50", "seeds": 2}
    assert runs(**fields) == [("reno", job, seed) for seed in (1, 2) for job in (0, 1)]


def test_the_same_job_in_another_place_is_not_the_same() -> None:
    """Seeds differ in who is behind one router with whom."""
    found = made(scheduler="random", jobs=2, seeds=6, system=["reno"])
    lone = [one for one in found if one.alone is not None]
    assert {job.ideal_s for one in found for job in one.jobs} == {one.jobs[0].ideal_s for one in lone}
    assert 1 < len(lone) < 12


@pytest.mark.parametrize("name", ["isolated_runs", "alone"])
def test_its_earlier_name_is_understood(name: str) -> None:
    assert runs(**{name: "each"}) == [("reno", 0, 1), ("mltcp_reno", 0, 1)]
    flag = f"--{name.replace('_', '-')}"
    assert spec.read(None, {"isolated_runs": "each"}).isolated_runs == "each"
    assert main(["run", "--dry-run", flag, "none", "--on", "flow"]) == EXIT_OK


def test_what_serves() -> None:
    """A run under a system that matters speaks for that system alone; one of another kind for none."""
    slow = made(system=["reno", "bbr"])
    lone = {one.system.label: one for one in slow if one.alone is not None}
    together = {one.system.label: one for one in slow if one.alone is None}
    for system, one in together.items():
        assert isolated.find(one, one.jobs[0], lone.values(), lambda each: each) == lone[system]
        other = msgspec.structs.replace(one.jobs[0], noise="9%")
        assert isolated.find(one, other, lone.values(), lambda each: each) is None
    del lone["bbr"]
    assert isolated.find(together["bbr"], together["bbr"].jobs[0], lone.values(), lambda each: each) is None


def test_a_summary_names_the_source_of_each_time(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = [
        "--on",
        "flow",
        "--iterations",
        "6",
        "--system",
        "reno",
        "mltcp_reno",
        "cubic",
        "--out",
        str(tmp_path),
        "--name",
        "x",
        "--json",
    ]
    assert main(["run", *words]) == EXIT_OK
    results = json.loads(capsys.readouterr().out)["results"]
    assert [[job["isolated_in"] for job in row["per_job"]] for row in results] == [["reno", "reno"]] * 3
    assert len({row["isolated_s"] for row in results}) == 1
    assert {path.parent.name for path in tmp_path.glob("x/isolated/*/*/*")} == {"reno"}
    assert len(load_experiment(tmp_path / "x").alone) == 1


def isolated_seeds(folder: Path) -> list[str]:
    return sorted(path.parent.name for path in folder.glob("isolated/*/*/*/manifest.json"))


@pytest.mark.parametrize(
    ("more", "seeds", "there"),
    [
        ([], ["1", "3"], ["1"]),
        ([], ["3", "1", "3"], ["3"]),
        (["--scheduler", "packed"], ["1", "3"], ["1"]),
        (["--isolated-runs", "each", "--system", "reno"], ["1", "3"], ["1", "3"]),
        (["--topo", "leafspine", "--workers", "4", "--system", "reno"], ["1", "3"], ["1", "3"]),  # a hash chooses paths
    ],
    ids=["auto", "back again", "packed", "each", "paths by chance"],
)
def test_an_isolated_run_of_another_seed_is_not_repeated_where_it_serves(
    more: list[str], seeds: list[str], there: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["run", "--on", "flow", "--jobs", "2", "--iterations", "4", "--out", str(tmp_path), "--name", "x", "--json"]
    for seed in seeds:
        capsys.readouterr()
        assert main([*words, *more, "--seed", seed]) == EXIT_OK
    results = json.loads(capsys.readouterr().out)["results"]
    assert set(isolated_seeds(tmp_path / "x")) == set(there)
    for row in results:  # both seeds, and every time in isolation is known
        assert row["seeds"] == [1, 3] and row["isolated_s"] is not None
    assert {path.parent.name for path in tmp_path.glob("x/reno/*/manifest.json")} == {"1", "3"}


def test_several_seeds_after_one_of_them_repeat_no_isolated_run(tmp_path: Path) -> None:
    words = [
        "run",
        "--on",
        "flow",
        "--jobs",
        "2",
        "--iterations",
        "4",
        "--out",
        str(tmp_path),
        "--name",
        "x",
        "--quiet",
    ]
    assert main([*words, "--seed", "3"]) == main([*words, "--seeds", "3"]) == EXIT_OK
    assert set(isolated_seeds(tmp_path / "x")) == {"3"}
    assert main([*words, "--seeds", "3", "--again"]) == EXIT_OK  # all of them
    assert set(isolated_seeds(tmp_path / "x")) == {"1", "3"}


def test_a_lone_jobs_own_run_is_the_source(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--on", "flow", "--iterations", "6", "--jobs", "1", "--out", str(tmp_path), "--name", "x", "--json"]
    assert main(["run", *words]) == EXIT_OK
    for row in json.loads(capsys.readouterr().out)["results"]:
        assert row["per_job"][0]["isolated_in"] == row["system"]
        assert row["isolated_s"] == pytest.approx(row["ideal_s"], rel=1e-6) and row["interleaved_at"] is None

"""SJF-BCO's Theorem 5 in the report: its verdict comes from schedules, and a makespan within the bound is found as well as one beyond."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

from analysis.sjf_bco import sjf_bound
from testbed.core.errors import RequestError
from testbed.core.runs.schedules import Setting
from testbed.planning import few_jobs, schedules
from testbed.report import figures, sections
from testbed.report.grading import Graded, Verdict
from testbed.spec import schedules as spec
from tests.support.claimed import graded
from tests.support.schedule_tables import FILES, Makespan, asked, invented, store

GIVEN = Setting(name="counterexample", seconds=(3, 3, 2, 2, 2))
SINGLE, RINGS = Setting(name="n_g = 1", largest=1), Setting(name="n_g = 4", largest=4)


def times(ratio: float, name: str = "sjf_bco") -> Makespan:
    """SJF-BCO takes so many times the optimum, with four GPUs four times as many; ``name``: in the readings that begin so."""

    def makespan(setting: str, scheduler: str, _servers: int) -> float:
        factor = 4 if setting == RINGS.name else 1
        return 6 * (ratio * factor if scheduler.startswith(name) else 1.0)

    return makespan


def computed(out: Path, *settings: Setting, seeds: int) -> Graded:
    what = asked("sjf-bound", *settings, seeds=seeds)
    rows = [row for cell in schedules.cells(what) for row in schedules.rows(cell)]
    store(what, rows, out)
    return judged(out)


def judged(results: Path) -> Graded:
    return graded("sjf-bound", results, results.parent / "report")["sjf-theorem-5"]


def test_the_counterexample_refutes_the_theorem(tmp_path: Path) -> None:
    """By the schedulers themselves, and the optimum."""
    found = computed(tmp_path / "results", GIVEN, SINGLE, RINGS, seeds=2)
    assert found.verdict == "not reproduced" and found.case and found.case.value >= 7 / 6 - 1e-6


def test_drawn_lists_of_single_gpu_jobs_refute_it_too_and_larger_ones_do_not(tmp_path: Path) -> None:
    single = computed(tmp_path / "1" / "results", GIVEN, SINGLE, seeds=20)
    assert single.verdict == "not reproduced" and single.case and single.case.value > 1
    table = pd.read_csv(tmp_path / "1" / "report" / "figures" / "sjf-bound-worst.csv").set_index("setting")
    assert table["value"][SINGLE.name] > 1 and table["seeds"][SINGLE.name] == 20
    computed(tmp_path / "4" / "results", GIVEN, RINGS, seeds=20)
    table = pd.read_csv(tmp_path / "4" / "report" / "figures" / "sjf-bound-worst.csv").set_index("setting")
    assert table["value"][RINGS.name] < 1


@pytest.mark.parametrize(
    ("makespan", "verdict"),
    [
        (times(1.0), "reproduced"),
        (times(1.01), "not reproduced"),
        (times(1.5, "sjf_bco:faffp"), "reproduced"),
    ],
)
def test_the_negative_control_is_a_little_beyond_the_bound(
    makespan: Makespan, verdict: Verdict, tmp_path: Path
) -> None:
    """At the optimum, or at the bound of larger jobs, the claim holds; so it does if one reading is within it."""
    invented("sjf-bound", makespan, tmp_path / "results", GIVEN, SINGLE, RINGS)
    assert judged(tmp_path / "results").verdict == verdict


def test_it_is_drawn(tmp_path: Path) -> None:
    invented("sjf-bound", times(1.2), tmp_path / "results", GIVEN, SINGLE, RINGS)
    figure = figures.find(sjf_bound.ID)
    section = sections.one(figure, tmp_path / "results", tmp_path / "out")
    assert section.problems == () and {path.suffix for path in section.files} == {".png", ".pdf", ".csv"}
    assert len(pd.read_csv(tmp_path / "out/sjf-bound.csv")) == 5 * (1 + 3 + 3)


@pytest.mark.parametrize("largest", [1, 4])
def test_few_jobs_are_few_and_one_of_them_is_the_largest(largest: int) -> None:
    for seed in range(1, 50):
        jobs, gpus = few_jobs.drawn(seed, largest)
        assert 4 <= len(jobs) <= 7 and max(one.gpus for one in jobs) == largest <= len(gpus)
        assert len({gpu.host for gpu in gpus}) == 1 and not any(one.gradient_bytes for one in jobs)
    assert few_jobs.drawn(1, largest) == few_jobs.drawn(1, largest) != few_jobs.drawn(2, largest)


def test_the_experiment_has_the_counterexample_of_the_issue() -> None:
    for quick in (False, True):
        what = spec.read(str(FILES["sjf-bound"]), quick=quick)
        assert [one.seconds for one in what.setting if one.seconds] == [(3, 3, 2, 2, 2)]
        assert set(what.scheduler) == {"optimum", *sjf_bound.READINGS} and what.seeds >= 50


@pytest.mark.parametrize(
    ("fields", "servers", "said"),
    [
        ("", 1, "few jobs need either `largest`"),
        ("largest = 1\nseconds = [1]", 1, "few jobs need either `largest`"),
        ("largest = 9", 1, "largest: 9 is not between 1 and 8"),
        ("seconds = [0]", 1, "seconds: give at most 8 times, each above 0"),
        ("largest = 1\nratio = 0.5", 1, "with few jobs, a setting has only"),
        ("largest = 1", 2, "few jobs run on one server"),
    ],
)
def test_what_makes_no_sense_is_refused(fields: str, servers: int, said: str, tmp_path: Path) -> None:
    file = tmp_path / "x.toml"
    file.write_text(
        f'kind = "schedules"\njobs = "few"\nservers = [{servers}]\nscheduler = ["optimum"]\n[[setting]]\nname = "x"\n{fields}\n'
    )
    with pytest.raises(RequestError, match="setting x: ") as error:
        spec.read(str(file))
    assert said in str(error.value)

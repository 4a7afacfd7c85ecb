"""What the SJF-BCO paper leaves open: how an experiment says it, and whether a place that changes with it is found."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest

from analysis.sjf_bco import sjf_fillers
from testbed.core.errors import RequestError
from testbed.core.runs.schedules import Setting
from testbed.models.contention import Model
from testbed.planning import published_mix, schedules
from testbed.report import figures, sections
from testbed.report.grading import Verdict
from testbed.spec import schedules as spec
from testbed.traces import job_lists
from tests.support.claimed import graded
from tests.support.schedule_tables import FILES, Makespan, asked, invented

BASE = Setting(name="0.5", ratio=0.5)
SETTINGS = (
    BASE,
    Setting(name="0.5, ξ2 = 1 ms", ratio=0.5, xi2_s=0.001),
    Setting(name="0.5, T = 8 × first fit", ratio=0.5, options="horizon=8"),
    Setting(name="0.5, backfill", ratio=0.5, options="backfill=yes"),
    Setting(name="0.5, arrivals", ratio=0.5, load=0.8),
)


def by_setting(usual: float, **others: float) -> Makespan:
    """SJF-BCO's makespan: as usual, but where a setting's name has such a word; that of all others is 500 s."""

    def makespan(setting: str, scheduler: str, _servers: int) -> float:
        own = next((value for word, value in others.items() if word in setting), usual)
        return own if scheduler == "sjf_bco" else 500.0

    return makespan


@pytest.mark.parametrize(
    ("makespan", "verdict"),
    [(by_setting(400.0), "reproduced"), (by_setting(400.0, ξ2=600.0), "not reproduced"), (by_setting(500.0), "no difference")],
)  # fmt: skip
def test_a_place_that_changes_is_found(makespan: Makespan, verdict: Verdict, tmp_path: Path) -> None:
    """The control is a makespan that turns round in a single row."""
    invented("sjf-fillers", makespan, tmp_path / "results", *SETTINGS)
    found = graded("sjf-fillers", tmp_path / "results", tmp_path / "report")
    assert found["sjf-fillers-ahead"].verdict == verdict and found["sjf-fillers-published"].verdict == "not measured"


def test_it_is_drawn(tmp_path: Path) -> None:
    published = Setting(name="published", ratio=0.05, most=0.15)
    invented("sjf-fillers", by_setting(400.0), tmp_path / "results", *SETTINGS, published)
    figure = figures.find(sjf_fillers.ID)
    section = sections.one(figure, tmp_path / "results", tmp_path / "out")
    assert section.problems == () and {path.suffix for path in section.files} == {".png", ".pdf", ".csv"}
    table = pd.read_csv(tmp_path / "out/sjf-fillers.csv")
    assert len(table) == 6 * 3 * 4 and set(table["setting"]) == {one.name for one in (*SETTINGS, published)}


@pytest.mark.parametrize("quick", [False, True])
def test_each_row_fills_in_one_thing(quick: bool) -> None:
    """For both amounts of communication the same rows; γ up to 1 ms a server, as the issue has it."""
    what = spec.read(str(FILES["sjf-fillers"]), quick=quick)
    usual = [one for one in what.setting if one == Setting(name=one.name, ratio=one.ratio, most=one.most)]
    rows = {
        base.name: {one.name.removeprefix(f"{base.name}, ") for one in what.setting if one.ratio == base.ratio}
        - {base.name}
        for base in usual
    }
    assert set(rows) == {"published", "0.5"} and rows["published"] == rows["0.5"]
    assert max(one.xi2_s for one in what.setting) == 0.001
    for one in what.setting:
        same = Setting(name=one.name, ratio=one.ratio, most=one.most)
        assert sum(getattr(one, name) != getattr(same, name) for name in one.__struct_fields__) <= 1


def test_constants_of_equation_8_are_those_of_the_setting() -> None:
    setting = Setting(name="x", ratio=0.5, alpha=0.7, xi1=0.5, xi2_s=0.001, intra=10, reduce=3)
    (cell,) = schedules.cells(asked("sjf-fillers", setting, seeds=1))
    assert schedules._model(cell) == Model(1e9, 1e10, 3e9, 0.7, 0.5, 0.001)
    (cell,) = schedules.cells(asked("sjf-fillers", BASE, seeds=1))
    assert schedules._model(cell) == Model(published_mix.RATE_BPS, alpha=0.3)


def test_arrivals_are_those_of_load() -> None:
    (cell,) = schedules.cells(asked("sjf-fillers", Setting(name="x", ratio=0.5, load=0.8), seeds=1))
    requests, gpus = schedules._drawn(cell)
    assert requests == job_lists.poisson(published_mix.jobs(1, 0.5), len(gpus), 0.8, 1)
    alike, _ = schedules._drawn(replace(cell, setting=BASE))
    assert alike == published_mix.jobs(1, 0.5)


@pytest.mark.parametrize(
    ("scheduler", "given", "found"),
    [
        ("sjf_bco", "", "sjf_bco"),
        ("sjf_bco", "horizon=4", "sjf_bco:horizon=4"),
        ("sjf_bco:kappa=1", "rho=worst,u=bounds", "sjf_bco:kappa=1,rho=worst,u=bounds"),
        ("random", "horizon=4,backfill=yes", "random:backfill=yes"),
        ("spread", "horizon=4", "spread"),
        ("./mine.toml", "horizon=4", "./mine.toml"),
    ],
)
def test_schedulers_are_given_the_options_that_they_have(scheduler: str, given: str, found: str) -> None:
    assert spec.with_options(scheduler, given) == found


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ('options = "horizon=0"', "horizon in 'sjf_bco:horizon=0': 0 is not between 1"),
        ('options = "speed=3"', "setting x: options: none of the schedulers has the option 'speed'"),
        ("load = 0", "setting x: load: 0 is not above 0"),
        ("intra = -1", "setting x: intra: -1 is not above 0"),
        ("reduce = nan", "setting x: reduce: nan is not above 0"),
        ("xi2_s = -0.1", "setting x: xi2_s: -0.1 is not between 0 and 1000"),
        ("alpha = inf", "setting x: alpha: inf is not between 0 and 1000"),
        ("largest = 2", 'setting x: largest and seconds need `jobs = "few"`'),
    ],
)
def test_what_makes_no_sense_is_refused(fields: str, said: str, tmp_path: Path) -> None:
    file = tmp_path / "x.toml"
    file.write_text(
        f'kind = "schedules"\nscheduler = ["sjf_bco", "random"]\n[[setting]]\nname = "x"\nratio = 0.5\n{fields}\n'
    )
    with pytest.raises(RequestError, match=r"x\.toml: ") as error:
        spec.read(str(file))
    assert said in str(error.value)

"""Experiments of schedules: read, computed, stored, drawn, and judged; and that their claims fail where uplinks have no limit."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest

from analysis.sjf_bco import sjf_kappa, sjf_lambda, sjf_makespan, sjf_servers
from testbed.campaign import schedule_tables as studies
from testbed.cli import main
from testbed.core.errors import EXIT_OK, EXIT_REQUEST, RequestError
from testbed.core.runs.load import LoadError, load_schedules
from testbed.core.runs.schedules import ABOUT, KEYS, NUMBERS, TABLE, Setting, digest
from testbed.planning import published_mix, schedules
from testbed.report import document, figures, sections
from testbed.report.grading import Verdict
from testbed.report.study import Study
from testbed.spec import schedules as spec
from tests.support import schedule_tables
from tests.support.claimed import graded
from tests.support.schedule_tables import FILES, Makespan, asked

SIMULATED = ("sjf-makespan", "sjf-kappa", "sjf-servers", "sjf-lambda")
FIGURES = {figure.ID: figure for figure in figures.every() if figure.ID in SIMULATED}
PUBLISHED, CONTENDED = Setting(name="published", ratio=0.05, most=0.15), Setting(name="0.5", ratio=0.5)
CONTROL = Setting(name="control", ratio=0.5, unlimited=True)


def invented(id: str, makespan: Makespan, out: Path, *settings: Setting) -> Study:
    return schedule_tables.invented(id, makespan, out, *(settings or (PUBLISHED, CONTENDED, CONTROL)))


def verdicts(id: str, makespan: Makespan, out: Path) -> dict[str, Verdict]:
    """By claim, of what was invented with the published setting and others."""
    invented(id, makespan, out / "results")
    return {name: one.verdict for name, one in graded(id, out / "results", out / "report").items()}


def contended(setting: str, scheduler: str, servers: int) -> float:
    """As in the report: SJF-BCO ahead, most of all on ten servers, where there is contention alone."""
    gain = 1.0 if setting == "control" or not scheduler.startswith("sjf_bco") else 0.4 + servers / 100
    return 10_000 / servers * gain


def by_option(values: dict[str, float]) -> Makespan:
    return lambda _setting, scheduler, _servers: values[scheduler]


AS_PUBLISHED: dict[str, Makespan] = {
    "sjf-makespan": contended,
    "sjf-servers": contended,
    "sjf-kappa": by_option({name: sjf_kappa.PUBLISHED[kappa] for name, kappa in sjf_kappa.POINTS.items()}),
    "sjf-lambda": by_option({name: sjf_lambda.PUBLISHED[lam] for name, lam in sjf_lambda.POINTS.items()}),
}


def test_what_is_as_published_is_reproduced(tmp_path: Path) -> None:
    kappa = verdicts("sjf-kappa", AS_PUBLISHED["sjf-kappa"], tmp_path / "kappa")
    assert {kappa[f"sjf-kappa-{what}"] for what in ("falls", "rises")} == {"reproduced"}
    assert kappa["sjf-kappa-falls-again"] == "no difference"  # 736 to 749 is less than 2 %
    lam = verdicts("sjf-lambda", AS_PUBLISHED["sjf-lambda"], tmp_path / "lambda")
    assert set(lam.values()) == {"reproduced"}
    servers = verdicts("sjf-servers", contended, tmp_path / "servers")
    assert servers["sjf-servers-fall"] == servers["sjf-gain-on-ten"] == "reproduced"


@pytest.mark.parametrize("id", FIGURES)
def test_where_nothing_makes_a_difference_claims_fail(id: str, tmp_path: Path) -> None:
    found = verdicts(id, lambda _setting, _scheduler, _servers: 500.0, tmp_path)
    assert set(found.values()) <= {"no difference", "not measured"}


def test_a_curve_that_turns_elsewhere_is_not_reproduced(tmp_path: Path) -> None:
    """Falling with κ, as without contention; rising with λ, as with much of it."""
    falling = {name: 700.0 - 10 * kappa for name, kappa in sjf_kappa.POINTS.items()}
    rising = {name: 500.0 + 10 * lam for name, lam in sjf_lambda.POINTS.items()}
    assert verdicts("sjf-kappa", by_option(falling), tmp_path / "kappa")["sjf-kappa-rises"] == "not reproduced"
    assert verdicts("sjf-lambda", by_option(rising), tmp_path / "lambda")["sjf-lambda-falls"] == "not reproduced"


@pytest.mark.parametrize("id", FIGURES)
def test_figures_are_drawn_with_the_published_values_beside_ours(id: str, tmp_path: Path) -> None:
    invented(id, AS_PUBLISHED[id], tmp_path / "results")
    section = sections.one(FIGURES[id], tmp_path / "results", tmp_path / "out")
    assert section.problems == () and {path.suffix for path in section.files} == {".png", ".pdf", ".csv"}
    table = pd.read_csv(tmp_path / "out" / f"{id}.csv")
    (column,) = (name for name in table.columns if name.startswith("published"))
    assert set(table[column].dropna().astype(int)) >= {535} or (
        id == "sjf-lambda" and set(table[column].dropna()) == {1043, 882, 730, 538}
    )


def test_published_values_are_those_of_the_facts() -> None:
    """As read from the paper's drawings: once in figures 4 and 6, and 5 at κ = 8."""
    assert (
        sjf_servers.PUBLISHED["sjf_bco"][2] == sjf_makespan.PUBLISHED["makespan_s"]["sjf_bco"] == sjf_kappa.PUBLISHED[8]
    )
    for name in ("list_scheduling", "first_fit", "random"):
        assert sjf_servers.PUBLISHED[name][2] == sjf_makespan.PUBLISHED["makespan_s"][name]


def test_a_report_of_schedules(tmp_path: Path) -> None:
    invented("sjf-lambda", AS_PUBLISHED["sjf-lambda"], tmp_path / "results")
    _, found = document.write(tmp_path / "results", tmp_path / "figures", tmp_path / "report.html")
    one = next(one for one in found if one.claim.figure == "sjf-lambda")
    assert "`FIGURE=sjf-lambda`" in (tmp_path / "report.md").read_text()
    assert 'href="#sjf-lambda"' in (tmp_path / "report.html").read_text()
    appendix = (tmp_path / "appendix.html").read_text()
    assert "36 schedules" in appendix and one.claim.sentence.replace("'", "&#39;") in appendix
    assert "mltcp sweep experiments/sjf-lambda.toml --out" in appendix and "sjf-lambda.csv" in appendix
    claims = pd.read_csv(tmp_path / "claims.csv")
    assert set(claims[claims["figure"] == "sjf-lambda"]["paper"]) == {"SJF-BCO", "ours"}


@pytest.fixture
def small(tmp_path: Path) -> Path:
    """An experiment that is computed in a second."""
    path = tmp_path / "sjf-lambda.toml"
    path.write_text(
        'kind = "schedules"\nseeds = 2\nservers = [20]\nscheduler = ["tightest_fit:orders=2", "best_of:n={trials}"]\n'
        '[[setting]]\nname = "0.5"\nratio = 0.5\n[quick]\nseeds = 1\n'
    )
    return path


def test_a_sweep_computes_what_is_not_there(small: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "results"
    assert main(["sweep", str(small), "--dry-run"]) == EXIT_OK
    assert "sjf-lambda: 4 schedules of 2 schedulers, computed" in capsys.readouterr().out and not out.exists()
    assert main(["sweep", str(small), "--out", str(out), "-j", "2"]) == EXIT_OK
    found = load_schedules(out / "sjf-lambda")
    assert len(found.table) == 4 and found.made.asked == spec.read(str(small))
    assert set(found.table["trials"]) == {2}, "as many as the first one"
    assert list(found.table.columns) == [*KEYS, *NUMBERS]
    before = (out / "sjf-lambda" / TABLE).read_bytes(), (out / "sjf-lambda" / ABOUT).stat().st_ino
    assert main(["sweep", str(small), "--out", str(out), "--quiet"]) == EXIT_OK
    assert (out / "sjf-lambda" / ABOUT).stat().st_ino == before[1], "it is there"
    studies.compute(spec.read(str(small)), tmp_path / "again", 1, quiet=True)
    assert (tmp_path / "again" / "sjf-lambda" / TABLE).read_bytes() == before[0], "the same bytes, on one core or two"
    assert main(["sweep", str(small), "--out", str(out), "--quick"]) == EXIT_OK
    assert load_schedules(out / "sjf-lambda").made.asked.seeds == 1


def test_the_folder_alone_can_be_drawn(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    invented("sjf-lambda", AS_PUBLISHED["sjf-lambda"], tmp_path / "results")
    for given in (tmp_path / "results", tmp_path / "results" / "sjf-lambda"):
        assert main(["figures", str(given), "--out", str(tmp_path / "out")]) == 0
        assert "sjf-lambda.png" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (("seeds = 2", "seeds = 0"), "seeds: 0 are not between 1 and 1000"),
        (("servers = [20]", "servers = []"), "servers: it is empty"),
        (("servers = [20]", "servers = [20, 20]"), "servers: 20 is given twice"),
        (("servers = [20]", "servers = [0]"), "servers: 0 are not between 1"),
        (("ratio = 0.5", "ratio = -1"), "ratio: -1 is not above 0"),
        (("ratio = 0.5", "ratio = 0.5\nmost = 0.15"), "communication already takes more than the fraction 0.15"),
        (("ratio = 0.5", "ratio = 0.5\nrate = 3"), "unknown field `rate`"),
        (('"tightest_fit:orders=2"', '"tightest"'), "there is no job scheduler|cannot be read|no file"),
        (('"tightest_fit:orders=2"', '"best_of:n={trials}"'), "is given twice"),
        (('"tightest_fit:orders=2", "best_of:n={trials}"', '"best_of:n={trials}"'), "comes first"),
        (("servers = [20]", "speed = 3"), "unknown field `speed`"),
        (("seeds = 2", "seeds = 1000\nalpha = -1"), "alpha: -1 is not between"),
    ],
)
def test_what_makes_no_sense_is_refused(
    change: tuple[str, str], said: str, small: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    small.write_text(small.read_text().replace(*change))
    assert main(["sweep", str(small), "--dry-run"]) == EXIT_REQUEST
    error = " ".join(capsys.readouterr().err.split())
    assert error.startswith("error: ") and re.search(said, error), error


def test_it_cannot_be_run(small: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", str(small)]) == EXIT_REQUEST
    assert "computed, not run. Use `mltcp sweep" in " ".join(capsys.readouterr().err.split())


@pytest.mark.parametrize("how", ["cell", "column", "digest", "json", "gone"])
def test_a_spoilt_table_is_a_problem_and_no_traceback(how: str, tmp_path: Path) -> None:
    invented("sjf-lambda", AS_PUBLISHED["sjf-lambda"], tmp_path)
    folder = tmp_path / "sjf-lambda"
    table = pd.read_csv(folder / TABLE)
    if how == "json":
        (folder / ABOUT).write_text("{")
    elif how == "gone":
        (folder / TABLE).unlink()
    else:
        spoilt = table.drop(columns="trials") if how == "column" else table.assign(makespan_s="soon")
        (folder / TABLE).write_bytes(content := spoilt.to_csv(index=False).encode())
        if how != "digest":
            told = json.loads((folder / ABOUT).read_text()) | {"digest": digest(content)}
            (folder / ABOUT).write_text(json.dumps(told))
    with pytest.raises(LoadError):
        load_schedules(folder)
    section = sections.one(FIGURES["sjf-lambda"], tmp_path, tmp_path / "out")
    assert section.problems and not section.files


@pytest.mark.parametrize("id", SIMULATED)
def test_experiments_are_those_of_the_issue(id: str) -> None:
    """Ten seeds, the published setting, communication ÷ computing from 0.1 to 1.5, and a control; in quick a control, too."""
    full, quick = spec.read(str(FILES[id])), spec.read(str(FILES[id]), quick=True)
    assert full.seeds >= 10 and quick.seeds >= 3
    assert {one.ratio for one in full.setting if not one.unlimited} >= {0.1, 0.5, 1.0, 1.5}
    for each in (full, quick):
        assert any(one.most == 0.15 for one in each.setting) and any(one.unlimited for one in each.setting)


def test_a_setting_says_how_much_contention_costs_at_the_most() -> None:
    """15 % of an iteration, with any number of jobs on an uplink."""
    (cell,) = schedules.cells(asked("sjf-lambda", PUBLISHED, seeds=1))
    model = schedules._model(cell)
    wide = replace(published_mix.jobs(1, PUBLISHED.ratio)[0], gpus=1000)
    shares = [1 - wide.compute_s / model.iteration_s(wide, 2, p) for p in (1, 3, 50)]
    assert shares == sorted(shares) and shares[-1] == pytest.approx(0.15, rel=0.01) and shares[0] < 0.06


def test_what_is_asked_of_whom(tmp_path: Path) -> None:
    """Files of schedules are told from others; what cannot be read is none of them."""
    other = tmp_path / "other.toml"
    other.write_text('kind = "else"')
    names = [str(FILES["sjf-kappa"]), str(other), str(tmp_path / "none.toml")]
    assert spec.apart(names) == (names[:1], names[1:])
    with pytest.raises(RequestError, match=re.escape(names[2])):
        spec.read(names[2])


def test_a_setting_can_say_how_many_gpus_servers_have(tmp_path: Path) -> None:
    assert [gpu.host for gpu in published_mix.servers(1, 9, gpus=4)] == [
        f"h{host}" for host in range(1, 10) for _ in range(4)
    ]
    text = 'kind = "schedules"\nservers = [{}]\nscheduler = ["fifo"]\n[[setting]]\nname = "a"\nratio = 1\ngpus = 4\n'
    for servers, refused in ((8, False), (7, True)):
        file = tmp_path / f"{servers}.toml"
        file.write_text(text.format(servers))
        if refused:
            with pytest.raises(RequestError, match="are too few for the largest job"):
                spec.read(str(file))
        else:
            assert spec.read(str(file)).setting[0].gpus == 4

"""One figure alone: its runs, its report, and the command that makes it."""

from __future__ import annotations

import csv
import json
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from testbed.cli import main
from testbed.report import chapters, figures, rerun_command, sections, study
from tests.support import synthetic

ROOT = Path(__file__).parents[3]
FILES = ("interleaving", "stragglers")

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("one figure")]


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Invented runs of two figures."""
    folder = tmp_path_factory.mktemp("figures") / "results"
    for name in FILES:
        synthetic.experiment(name, folder, synthetic.gains, seeds=2, iterations=12)
    return folder


def reported(results: Path, out: Path, *experiments: str) -> tuple[int, list[dict[str, str]]]:
    only = ["--experiments", *experiments] if experiments else []
    code = main(["report", str(results), "--out", str(out / "report.html"), "--figures", str(out / "figures"), *only])
    with (out / "claims.csv").open() as file:
        return code, list(csv.DictReader(file))


def test_a_report_of_one_experiment_has_its_figure_and_claims_alone(results: Path, tmp_path: Path) -> None:
    code, rows = reported(results, tmp_path, "experiments/interleaving.toml")
    assert code == 0
    assert {row["figure"] for row in rows} == {"interleaving"}
    assert all(path.stem.startswith("interleaving") for path in (tmp_path / "figures").iterdir())
    assert 'id="stragglers"' not in (tmp_path / "report.html").read_text()


def test_the_others_stay_as_they_are(results: Path, tmp_path: Path) -> None:
    reported(results, tmp_path)
    before = {path.name: path.read_bytes() for path in (tmp_path / "figures").iterdir()}
    assert {name.partition(".")[0] for name in before} >= set(FILES)
    reported(results, tmp_path, "experiments/interleaving.toml")
    assert {path.name: path.read_bytes() for path in (tmp_path / "figures").iterdir()} == before


def test_an_experiment_without_a_figure_has_no_report(results: Path, tmp_path: Path) -> None:
    words = ["report", str(results), "--out", str(tmp_path / "x.html"), "--experiments", "experiments/hosts/ring.toml"]
    assert main(words) == 0 and not (tmp_path / "x.html").exists()


@pytest.mark.parametrize(
    ("experiments", "on", "twin"),
    [
        ("experiments/interleaving.toml", "uml", False),
        ("experiments/interleaving.toml experiments/map.toml", "uml", False),
        ("experiments/twin.toml", "uml", True),
        ("experiments/t*.toml", "uml", True),
        ("experiments/twin.toml", "host", False),  # it is virtual time that is compared with
        (None, "uml", True),
        (None, "host", False),
    ],
)
def test_what_make_reproduce_would_run(experiments: str | None, on: str, twin: bool) -> None:
    asked = [] if experiments is None else [f"EXPERIMENTS={experiments}"]
    said = subprocess.run(["make", "-n", "reproduce", f"ON={on}", "QUICK=1", *asked], cwd=ROOT, capture_output=True, text=True, check=True)  # fmt: skip
    lines = [line.strip() for line in said.stdout.splitlines()]
    assert any("experiments/twin/twin.flow.toml" in line for line in lines) == twin
    (report,) = (line for line in lines if " analysis report " in line)
    assert report.partition("--experiments ")[2].partition(" ||")[0].strip() == (experiments or "")


def test_make_report_links_to_an_explorer_that_is_there(tmp_path: Path) -> None:
    make = ["make", "-s", "-n", "-C", str(tmp_path), "-f", str(ROOT / "Makefile"), "report"]
    for there in (False, True):
        said = subprocess.run(make, capture_output=True, text=True, check=True).stdout
        assert ("--figures figures --explorer explorer.html" in said) is there
        (tmp_path / "explorer.html").touch()


def test_what_is_made_in_the_checkout_is_ignored() -> None:
    made = [
        "explorer.html",
        "report.html",
        "report.md",
        "claims.csv",
        "figures/x.png",
        "results/quick/x/summary.json",
        "results/.lock",
    ]
    done = subprocess.run(["git", "check-ignore", "--no-index", *made], cwd=ROOT, capture_output=True, text=True, check=False)  # fmt: skip
    if done.returncode == 128:
        pytest.skip("no git checkout")
    assert done.stdout.split() == made


@pytest.mark.parametrize(
    "said",
    [
        ["__main__.py", "sweep", "experiments/interleaving.toml", "-j2", "--out", "x"],
        ["__main__.py", "sweep", "/home/me/mltcp/experiments/interleaving.toml", "--again"],
        ["run.py", "/home/me/mltcp/experiments/interleaving.toml", "--renew"],
        ["script.py", "--of-mine"],
        ["run.py", "other.toml"],
    ],
)
def test_a_stock_experiment_has_a_command(said: Sequence[str], results: Path, tmp_path: Path) -> None:
    copy = tmp_path / "results"
    for path in results.glob("interleaving*"):
        shutil.copytree(path, copy / path.name)
    for path in copy.rglob("manifest.json"):
        path.write_text(json.dumps(json.loads(path.read_text()) | {"command": said}))
    figure = figures.find("interleaving")
    (command,) = chapters.commands(sections.one(figure, copy, tmp_path / "out"), "results")
    assert command != rerun_command.NOT_OFFERED and "experiments/interleaving.toml" in command.split()


@pytest.mark.parametrize(
    ("folders", "expected"),
    [
        (["map.a", "map.b"], {"map.a", "map.b"}),
        (["map-on-host.a", "map-on-host.b"], {"map.a", "map.b"}),
        (["map.a", "map-on-host.a", "map-on-host.b"], {"map.a", "map-on-host.a", "map-on-host.b"}),
        (["map-on-host.a", "map-on-flow.a"], {"map-on-host.a", "map-on-flow.a"}),
        (["map-on-ssh-root-server-1a2b3c.a", "twin.flow.x"], {"map.a", "twin.flow.x"}),
    ],
)
def test_a_figure_is_of_one_backend(folders: list[str], expected: set[str], tmp_path: Path) -> None:
    """What ran on another one than an experiment's own is taken where there is nothing else."""
    for name in folders:
        (tmp_path / name / "reno" / "1").mkdir(parents=True)
    assert study.experiments(tmp_path).keys() == expected
    assert set(study.ids(tmp_path)) == {name.partition(".")[0] for name in expected}

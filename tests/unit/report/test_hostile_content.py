"""What a foreign results folder says reaches a terminal, a page, a spreadsheet and a shell cleaned."""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pandas as pd
import pytest

from testbed.cli import main, run, sweep
from testbed.core.errors import EXIT_REQUEST
from testbed.core.runs.load import TABLES, load_experiment
from testbed.report import agreement, drawing, figures, pages, rerun_command, sections, style
from tests.support import synthetic

EVIL = "\x1b]0;owned\x07<script>alert(1)</script>|```[/nope]$\\frac{$"
PROGRAM = ["run.py", "--job", "cmd:sh -c 'rm x'", "--out", "/etc"]

pytestmark = pytest.mark.xdist_group("hostile")


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two seeds of the first figure, whose manifests say what nobody should repeat."""
    folder = tmp_path_factory.mktemp("foreign") / "results"
    synthetic.experiment("interleaving", folder, synthetic.gains, seeds=2, iterations=12, system=("reno", "mltcp_reno"))
    for path in folder.rglob("manifest.json"):
        manifest = json.loads(path.read_text())
        manifest |= {"command": PROGRAM, "kernel": EVIL, "python": EVIL, "backend": EVIL}
        for job in manifest["plan"]["jobs"]:
            job["trace"] = EVIL
        path.write_text(json.dumps(manifest))
    (folder / "interleaving" / "reno" / "1" / "verdict.json").write_text(f'{{"version": "{EVIL[2:9]}"}}')
    return folder


def test_a_report_of_foreign_results(results: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["report", str(results), "--out", str(tmp_path / "report.html"), "--figures", str(tmp_path)])
    said = capsys.readouterr()
    page, text, appendix = ((tmp_path / name).read_text() for name in ("report.html", "report.md", "appendix.html"))
    assert "\x1b" not in said.out + said.err + text
    assert "<script>" not in page + text + appendix
    assert "cmd:" not in page + text + appendix and rerun_command.NOT_OFFERED in appendix
    assert all(len(line) < 10 for line in text.splitlines() if "```" in line and "\\`" not in line)  # fences of our own
    assert (tmp_path / "interleaving.png").is_file()  # a dollar sign begins no formula


@pytest.mark.slow
def test_a_manifest_of_other_types_is_no_traceback(
    results: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(results, tmp_path / "results")
    path = tmp_path / "results" / "interleaving" / "mltcp_reno" / "1" / "manifest.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"packages": "none"}))
    assert (
        main(["report", str(tmp_path / "results"), "--out", str(tmp_path / "x.html"), "--figures", str(tmp_path)]) == 1
    )
    assert "does not have the format of a run" in capsys.readouterr().err


@pytest.mark.slow
def test_foreign_results_side_by_side(results: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    evil = tmp_path / f"x{EVIL.replace('/', '')}"
    evil.symlink_to(results)
    assert main(["compare", str(evil), str(results), "--out", str(tmp_path)]) == 0
    assert "\x1b" not in "".join(capsys.readouterr())


@pytest.mark.slow
@pytest.mark.parametrize("name", ["x" * 5000, "/proc/none/x", "/dev/null/x", "caf\udce9"])
@pytest.mark.parametrize("where", ["results", "out"])
def test_names_that_cannot_be(where: str, name: str, results: Path, capsys: pytest.CaptureFixture[str]) -> None:
    given = {"results": str(results), "out": "figures", where: name}
    code = main(["figures", given["results"], "--out", given["out"]])
    said = capsys.readouterr().err
    assert code == EXIT_REQUEST
    assert said.count("error:") == 1 and "Traceback" not in said and len(said) < 500


@pytest.mark.slow
def test_cells_that_a_spreadsheet_would_compute(tmp_path: Path) -> None:
    drawing.write_table(
        pd.DataFrame({"cc": ["=1+1", "@x", "-y", "reno"], "a": [-1.0, 2.0, 3.0, 4.0]}), tmp_path / "x.csv"
    )
    lines = (tmp_path / "x.csv").read_text().splitlines()
    assert lines == ["cc,a", "'=1+1,-1", "'@x,2", "'-y,3", "reno,4"]


@pytest.mark.slow
def test_a_name_is_no_formula(tmp_path: Path) -> None:
    figure, axes = style.new_figure(1, 1)
    axes[0, 0].set_title(EVIL[-8:])
    assert style.save(figure, tmp_path / "x")[0].stat().st_size > 1000


@pytest.mark.slow
@pytest.mark.parametrize(
    ("said", "offered"),
    [
        (["run.py", "--jobs", "2", "--cc", "reno", "mltcp_reno:slope=1", "--out", "/etc"],
         "mltcp run --jobs 2 --cc reno mltcp_reno:slope=1 --out results"),
        (["run.py", "experiments/a.toml", "--on", "ssh:root@evil:22", "-j", "9"],
         "mltcp run experiments/a.toml --on ssh:HOST --out results"),
        (["__main__.py", "sweep", "a.toml", "/etc/b.toml", "--quick"], "mltcp sweep experiments/a.toml --quick --out results"),
        ([], "mltcp sweep experiments/a.toml --out results"),
        (PROGRAM, rerun_command.NOT_OFFERED),
        (["run.py", "--job=cmd:reboot"], rerun_command.NOT_OFFERED),
        (["run.py", "--set", "job.0.trace=cmd:reboot"], rerun_command.NOT_OFFERED),
        (["run.py", "--topo", "./evil.py"], rerun_command.NOT_OFFERED),
        (["run.py", "--cc", "evil.bpf.c"], rerun_command.NOT_OFFERED),
        (["run.py", "other.toml"], rerun_command.NOT_OFFERED),
        (["run.py", "--verify", "x"], rerun_command.NOT_OFFERED),
        (["run.py", "--name", "a\n```"], rerun_command.NOT_OFFERED),
        (["mltcp", "run", "--jobs", "2"], "mltcp run --jobs 2 --out results"),
        (["__main__.py", "run", "experiments/a.toml", "--system", "reno:label=my Reno"], "mltcp run experiments/a.toml --system 'reno:label=my Reno' --out results"),
        (["mltcp", "demo"], "mltcp demo --out results"),
    ],
)  # fmt: skip
def test_the_command_that_is_offered(said: list[str], offered: str) -> None:
    assert rerun_command.command(said, "experiments/a.toml", "results") == offered


@pytest.mark.slow
@pytest.mark.parametrize("command", [run, sweep])
def test_every_flag_of_a_run_is_known_to_it(command: Any) -> None:
    parser = argparse.ArgumentParser()
    command.add_arguments(parser)
    known = rerun_command.VALUES | rerun_command.SWITCHES | rerun_command.LEFT_OUT
    unknown = [
        action.option_strings
        for action in parser._actions
        if action.option_strings and not known & {*action.option_strings}
    ]
    nothing_run = {
        "--help",
        "--dry-run",
        "--verify",
        "--measure",
        "--pause-at",
        "--allow-external-code",
        "--trust",
    }  # or what is not offered
    assert [flags for flags in unknown if not nothing_run & {*flags}] == []


@pytest.mark.slow
def test_tables_are_let_go_of(results: Path, tmp_path: Path) -> None:
    figure = figures.find("interleaving")
    section = sections.one(figure, results, tmp_path)
    assert section.files and section.every_run
    assert not [name for run in section.every_run for name in TABLES if name.removesuffix(".csv") in vars(run)]


@pytest.mark.slow
def test_everything_that_differs_is_named(results: Path) -> None:
    one, other = (load_experiment(results / "interleaving", [("mltcp_reno", 1)]) for _ in range(2))
    assert agreement.differences(one, other) == []
    (run,) = other.runs
    longer = msgspec.structs.replace(run.jobs[0], iterations=run.jobs[0].iterations + 1)
    link = msgspec.structs.replace(run.plan.link, mtu=9000)
    plan = msgspec.structs.replace(run.plan, rto_min_us=5000, link=link, jobs=(longer, *run.jobs[1:]))
    changed = replace(run, manifest=msgspec.structs.replace(run.manifest, plan=plan))
    assert agreement.differences(one, replace(other, runs=[changed])) == [
        "link.mtu is 1500 and 9000",
        "rto_min_us is None and 5000",
        "other jobs",
    ]


@pytest.mark.slow
def test_an_interval_without_width_is_no_two_numbers() -> None:
    assert pages.interval((0.00085, 0.00085)) == "0.000850, no spread"
    assert pages.interval((1.02, 1.1)) == "1.02 to 1.10"


@pytest.mark.parametrize("command", [["figures"], ["explore"], ["compare", "."]])
def test_a_folder_that_is_not_there_is_noticed_at_once(command: list[str], tmp_path: Path) -> None:
    """Before anything that takes seconds to import."""
    asked = [*command, str(tmp_path / "none")]
    words = f"import sys; from testbed.cli import main; code = main({asked!r}); print(code, {{'pandas', 'matplotlib'}} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-P", "-c", words], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == f"{EXIT_REQUEST} set()"
    assert done.stderr.count("error:") == 1 and "is not there" in " ".join(done.stderr.split())
